"""The control loop of the head (observe, reconcile, commit, apply), and the intake of
requests."""

from corral.control.alert_delivery import Alerting
from corral.control.control import Control
from corral.control.event_hub import Hub
from corral.control.forecasts import Forecasts
from corral.control.queue_position import InLine
from corral.control.removal_allowed import jobs_on
from corral.control.request_checks import Planned
from corral.control.series_recorder import Recorder

__all__ = [
    "Alerting",
    "Control",
    "Forecasts",
    "Hub",
    "InLine",
    "Planned",
    "Recorder",
    "jobs_on",
]
