"""The head's mind: intake of wishes, and the loop: observe, reconcile, commit, apply."""

from corral.control.control import Control
from corral.control.forecasts import Forecasts
from corral.control.hub import Hub
from corral.control.intake import Planned
from corral.control.leaving import jobs_on

__all__ = ["Control", "Forecasts", "Hub", "Planned", "jobs_on"]
