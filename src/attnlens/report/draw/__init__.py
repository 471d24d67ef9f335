"""Draw records as figures: with plotly (as plain JSON) for the page, matplotlib for papers.

Both libraries draw the same record in the same colours.
"""
