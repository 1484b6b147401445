"""Warnings of the head for operators: what `corral status` and the pages show."""

from dataclasses import dataclass

from corral.domain.coded import Coded
from corral.domain.ids import NodeId


class WarningCode(Coded):
    """Subject of a warning to operators, as a code. The text of the warning is for
    people and may change; the code does not."""

    PLACING_STOPPED = (
        "placing_stopped",
        "the head places no jobs, because its own data contradicts itself",
        "restart the head, and report the files in replays/ of the cluster's directory",
    )
    PLACING_FAILED = (
        "placing_failed",
        "the last scheduling pass failed because of a bug in Corral",
        "report the files in replays/ of the cluster's directory",
    )
    PASS_FAILED = (
        "pass_failed",
        "the last pass of the head failed; the head tries it again",
        "if it stays: read head.log in the cluster's directory",
    )
    ENGINE_UNREACHABLE = (
        "engine_unreachable",
        "Slurm, Kubernetes or Ray does not answer the head",
        "try sinfo, kubectl get nodes or ray status on the head's machine",
    )
    ENGINE = (
        "engine",
        "some nodes of Slurm, Kubernetes or Ray cannot be used by the head now",
        "run: corral node ls",
    )
    NODE_SILENT = "node_silent", "a node does not answer", "see: corral node show NODE"
    NODE_DEAD = (
        "node_dead",
        "a node is known to be down",
        "repair or restart the machine, or run: corral node rm NODE",
    )
    NODE_ISOLATION = (
        "node_isolation",
        "a node isolates its ranks only in part: it lacks cgroups or a private root",
        "see: SECURITY.md",
    )
    NODE_FAULT = "node_fault", "a node has a fault", "see: corral node show NODE"
    SUSPECTS = (
        "suspects",
        "nodes have faults, and an operator must decide whether to cordon them",
        "run: corral node cordon --suspects",
    )
    USERS_NOT_SEPARATED = (
        "users_not_separated",
        "users of a node are not isolated: they can read each other's files",
        "see: SECURITY.md, section By engine",
    )
    USERS_KEPT_OUT = (
        "users_kept_out",
        "ranks of some users cannot reach their files",
        "see: docs/guides/node-policy.md",
    )
    DROPPED_DATA = (
        "dropped_data",
        "a node sends values that are not valid or too many; they are dropped or delayed",
        "run: corral events",
    )
    DISK_FULL = (
        "disk_full",
        "a disk of the head is full or almost full",
        "free space on that disk",
    )
    FEW_FILES = (
        "few_files",
        "the head's limit of open files is too low for the number of its nodes",
        "raise it: ulimit -n 65536, or LimitNOFILE in the unit of systemd",
    )
    AUDIT = (
        "audit",
        "entries of the audit log do not reach syslog",
        "see: docs/guides/audit.md",
    )
    ALERTS = (
        "alerts",
        "the alerts file cannot be read, or alerts do not reach a receiver",
        "run: corral alert test",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterWarning:
    """A warning to operators. `node` is the node that it is about; None if it is not
    about one node."""

    code: WarningCode
    text: str
    node: NodeId | None = None
