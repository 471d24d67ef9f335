"""The page: one self-contained `report.html`, rendered from plain documents.

`templates/` holds the HTML, the style sheet (`style.css`: the page's colours) and the script;
`draw/` turns records into figures.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
