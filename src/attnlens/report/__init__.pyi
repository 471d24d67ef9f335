from .inspection import render_inspection as render_inspection
from .inspection import write_inspection as write_inspection
from .sheet import render_sheet as render_sheet
from .sheet import write_sheet as write_sheet
