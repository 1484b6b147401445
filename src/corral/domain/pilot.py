"""Parts of lent nodes: the agent that an attempt brings to a node which has none of its
own.

A part is called `NODE~JOB.ATTEMPT`. No node can be called so, for `~` is in no name.
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
LEAVING: Final = "the batch system asked it to end"


def part_of(node: NodeId, key: AttemptKey) -> NodeId:
    """Return the name of the agent of this attempt on this node."""
    return NodeId(f"{node}{MARK}{key[0]}.{key[1]}")


def is_part(id: NodeId) -> bool:
    return MARK in id


def node_of(id: NodeId) -> NodeId:
    """Return the node of a part. A name that is not a part's is returned unchanged."""
    return NodeId(id.partition(MARK)[0])


def key_of(id: NodeId) -> AttemptKey | None:
    """The attempt that a part is of; None for a node. Raises: ValueError for what is
    neither."""
    if not is_part(id):
        return None
    job, _, number = id.partition(MARK)[2].rpartition(".")
    return JobId(job), AttemptNumber(int(number))


def may_tell(signal: Signal) -> bool:
    """Whether a part may tell it (0062): what a driver says of a GPU that is granted to
    it. Of the machine, which it shares with others, it judges nothing."""
    return signal.kind in OF_A_GPU and signal.gpu is not None
