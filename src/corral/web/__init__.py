"""The pages: files built from ui/, served beside the API. No rule of the cluster is here."""

from corral.web.pages import FOLDER, Pages, is_page

__all__ = ["FOLDER", "Pages", "is_page"]
