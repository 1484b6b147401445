"""Which side caused the end of an attempt."""

from corral.domain.coded import Coded


class Cause(Coded):
    """Cause of an attempt's end. It decides which retry budget is charged."""

    NONE = "none", "the attempt ended as it should"
    USER = "user", "the job's own program failed"
    INFRA = "infra", "the cluster is at fault: a node, a GPU, a network, a disk"
    REQUEST = "request", "it was ended on request: cancel, suspend, preempt, time"
