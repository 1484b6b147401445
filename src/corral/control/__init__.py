"""The head's mind: intake of wishes, and the loop: observe, reconcile, commit, apply."""

from corral.control.control import Control
from corral.control.hub import Hub
from corral.control.intake import Planned

__all__ = ["Control", "Hub", "Planned"]
