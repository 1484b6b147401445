"""Web pages: files built from ui/, served next to the API, without cluster rules."""

from corral.web.pages import FOLDER, Pages, is_page

__all__ = ["FOLDER", "Pages", "is_page"]
