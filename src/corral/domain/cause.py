"""Which side caused the end of an attempt."""

from corral.domain.coded import Coded


class Cause(Coded):
    """Cause of an attempt's end. It decides which retry budget is charged."""

    NONE = "none", "the attempt ended normally"
    USER = "user", "the job's own program failed"
    INFRA = "infra", "the cluster is at fault: a node, a GPU, a network, a disk"
    REQUEST = (
        "request",
        "the attempt was ended by a cancel, a suspend, a preemption or its time limit",
    )
