"""Who is to blame for the end of an attempt."""

from corral.domain.coded import Coded


class Cause(Coded):
    """Cause of an end, which decides the retry budget that pays."""

    NONE = "none", "the attempt ended as it should"
    USER = "user", "the job's own program failed"
    INFRA = "infra", "the cluster is at fault: a node, a GPU, a network, a disk"
    REQUEST = "request", "it was ended on request: cancel, suspend, preempt, time"
