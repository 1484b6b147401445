"""Warnings of the head for operators: what `corral status` and the pages show."""

from dataclasses import dataclass

from corral.domain.coded import Coded
from corral.domain.ids import NodeId


class WarningCode(Coded):
    """Kind of a warning. Its text is for people and may change."""

    PLACING_STOPPED = (
        "placing_stopped",
        "the head places no jobs, because something that it knows contradicts itself",
    )
    PLACING_FAILED = "placing_failed", "the last scheduling pass met a bug of Corral"
    PASS_FAILED = "pass_failed", "the last pass of the head failed and is tried again"
    ENGINE_UNREACHABLE = (
        "engine_unreachable",
        "Slurm, Kubernetes or Ray does not answer the head",
        "try the engine's own commands on the head's machine",
    )
    ENGINE = "engine", "a part of what the engine lends cannot be used now"
    NODE_SILENT = "node_silent", "a node does not answer"
    NODE_DEAD = "node_dead", "a node is known to be down"
    NODE_ISOLATION = (
        "node_isolation",
        "a node keeps ranks apart less well than others can",
        "see: SECURITY.md",
    )
    NODE_FAULT = "node_fault", "a node has a fault", "see: corral node show NODE"
    SUSPECTS = (
        "suspects",
        "nodes have faults, and a person decides whether to cordon them",
        "corral node cordon --suspects",
    )
    USERS_NOT_SEPARATED = (
        "users_not_separated",
        "nothing keeps the users of a node apart",
        "see: SECURITY.md, By engine",
    )
    USERS_KEPT_OUT = "users_kept_out", "ranks of some users cannot reach their files"
    DROPPED_DATA = "dropped_data", "a node sends data out of bounds, which is dropped"
    DISK_FULL = "disk_full", "a disk of the head is full, or nearly", "make room there"
    FEW_FILES = "few_files", "the head may open too few files for its nodes"
    AUDIT = "audit", "entries of the audit log do not reach syslog"
    ALERTS = (
        "alerts",
        "alerts cannot be read from their file, or do not reach a receiver",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterWarning:
    """One warning. `node` is the node that it is about; None if it is not about one
    node."""

    code: WarningCode
    text: str
    node: NodeId | None = None
