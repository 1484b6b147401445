"""The web interface: files built from ui/, served next to the API. They contain no
rules of the cluster."""

from corral.web.pages import FOLDER, Pages, is_page

__all__ = ["FOLDER", "Pages", "is_page"]
