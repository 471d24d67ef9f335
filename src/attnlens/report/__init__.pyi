from .comparison import write_comparison as write_comparison
from .page import render as render
from .page import write_report as write_report
from .sheet import render_sheet as render_sheet
from .sheet import write_sheet as write_sheet
