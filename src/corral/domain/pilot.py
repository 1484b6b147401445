"""Parts of nodes from a batch system. A part (also called a pilot) is the agent that an
attempt brings to a node that has no agent of its own.

The name of a part is `NODE~JOB.ATTEMPT`. No node can have such a name, because `~` is
not allowed in names.
"""

from typing import Final

from corral.domain.ids import AttemptNumber, JobId, NodeId
from corral.domain.node_signal import Signal, SignalKind
from corral.domain.observed_state import AttemptKey

# What a driver says of one GPU. Not that it is silent: a container that is short of CPU
# looks so.
OF_A_GPU: Final = frozenset(
    {
        SignalKind.XID,
        SignalKind.ECC,
        SignalKind.REMAP,
        SignalKind.NVLINK,
        SignalKind.PCIE,
        SignalKind.THROTTLE,
        SignalKind.GPU_LOST,
    }
)
MARK: Final = "~"
# what a part says of an end that was not its own
LEAVING: Final = "the batch system asked the attempt to end"


def part_of(node: NodeId, key: AttemptKey) -> NodeId:
    """Return the name of the agent of this attempt on this node."""
    return NodeId(f"{node}{MARK}{key[0]}.{key[1]}")


def is_part(id: NodeId) -> bool:
    return MARK in id


def node_of(id: NodeId) -> NodeId:
    """Return the node of a part. The name of a node is returned unchanged."""
    return NodeId(id.partition(MARK)[0])


def key_of(id: NodeId) -> AttemptKey | None:
    """Return the attempt that a part belongs to; None for a node. Raises: ValueError
    for a text that is neither."""
    if not is_part(id):
        return None
    job, _, number = id.partition(MARK)[2].rpartition(".")
    return JobId(job), AttemptNumber(int(number))


def may_tell(signal: Signal) -> bool:
    """Return whether the head accepts this signal from a part (0062).

    A part may report what a driver says about a GPU of its own. It may report nothing
    about the machine, which it shares with others.
    """
    return signal.kind in OF_A_GPU and signal.gpu is not None
