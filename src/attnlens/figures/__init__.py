"""Plain records -> figures: plotly (as plain JSON) for the page, matplotlib for papers.

Both draw the same record with the same colours.
"""

from .lines import colours, drawable, power_law, to_matplotlib, to_plotly
from .maps import grid, map_to_matplotlib, map_to_plotly
from .surfaces import surface_to_matplotlib, surface_to_plotly
from .ticks import log_places, log_ticks

__all__ = [
    "colours", "drawable", "grid", "log_places", "log_ticks", "map_to_matplotlib", "map_to_plotly",
    "power_law", "surface_to_matplotlib", "surface_to_plotly", "to_matplotlib", "to_plotly",
]  # fmt: skip
