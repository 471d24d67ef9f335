from .sheet import render_sheet as render_sheet
from .sheet import write_sheet as write_sheet
