"""Waiting gangs and free nodes -> who goes where, and for everybody else why not. Pure."""

from corral.schedule.ahead import Ending, Promise
from corral.schedule.decide import decide
from corral.schedule.decision import Decision, Held, Placed, Preempted, Reasons, Reserved
from corral.schedule.fleet import Fleet
from corral.schedule.floor import Floor
from corral.schedule.groups import Groups
from corral.schedule.learned import Learned
from corral.schedule.room import NodeRoom
from corral.schedule.roster import Roster
from corral.schedule.running import Running
from corral.schedule.shares import Shares
from corral.schedule.waiting import Waiting

__all__ = [
    "Decision",
    "Ending",
    "Fleet",
    "Floor",
    "Groups",
    "Held",
    "Learned",
    "NodeRoom",
    "Placed",
    "Preempted",
    "Reasons",
    "Promise",
    "Reserved",
    "Roster",
    "Running",
    "Shares",
    "Waiting",
    "decide",
]
