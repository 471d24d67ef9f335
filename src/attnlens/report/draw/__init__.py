"""Drawing records as figures: plotly (as plain JSON) for the page, matplotlib for papers.

Both draw the same record in the same colours.
"""
