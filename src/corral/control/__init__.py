"""The head's mind: intake of wishes, and the loop: observe, reconcile, commit, apply."""

from corral.control.alerting import Alerting
from corral.control.control import Control
from corral.control.forecasts import Forecasts
from corral.control.hub import Hub
from corral.control.in_line import InLine
from corral.control.intake import Planned
from corral.control.leaving import jobs_on
from corral.control.recording import Recorder

__all__ = ["Alerting", "Control", "Forecasts", "Hub", "InLine", "Planned", "Recorder", "jobs_on"]
