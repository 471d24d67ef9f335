"""Plain records -> figures: plotly (as plain JSON) for the page, matplotlib for papers.

Both draw the same record with the same colours.
"""
