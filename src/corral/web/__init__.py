"""The web pages: files built from ui/, served next to the API. They hold no cluster rules.
"""

from corral.web.pages import FOLDER, Pages, is_page

__all__ = ["FOLDER", "Pages", "is_page"]
