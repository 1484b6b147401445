"""The scheduler. From waiting gangs and free nodes, it decides which gang goes where,
and why the others must wait. This package is pure: it does no input or output."""

from corral.schedule.capacity.free_capacity import Floor
from corral.schedule.capacity.node_room import NodeRoom
from corral.schedule.decide import decide
from corral.schedule.decision import (
    Decision,
    Placed,
    Preempted,
    Reasons,
    Reserved,
    Unplaced,
)
from corral.schedule.job_groups import Groups
from corral.schedule.placement.availability import Promise, SeatEnd
from corral.schedule.placement.gpu_sharing import Shares
from corral.schedule.placement.node_types import NodeTypes
from corral.schedule.placement.sleeping_room import LentSeat
from corral.schedule.prediction.runtime_model import Learned
from corral.schedule.preemption.candidates import Roster
from corral.schedule.running import RunningGang
from corral.schedule.waiting import Waiting

__all__ = [
    "Decision",
    "SeatEnd",
    "NodeTypes",
    "Floor",
    "Groups",
    "Unplaced",
    "Learned",
    "LentSeat",
    "NodeRoom",
    "Placed",
    "Preempted",
    "Reasons",
    "Promise",
    "Reserved",
    "Roster",
    "RunningGang",
    "Shares",
    "Waiting",
    "decide",
]
