from .comparison import write_comparison as write_comparison
from .page import render as render
from .page import write_report as write_report
