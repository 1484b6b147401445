"""Kinds of what an agent reports that went wrong with an attempt."""

from corral.domain.coded import Coded


class TroubleKind(Coded):
    """Kind of a trouble, in addition to the sentence about it."""

    NONE = "", "the sentence says all"
    SETUP = "setup", "the command in `setup` failed, so the ranks were not started"
    ASKED_TO_END = "asked_to_end", "the batch system asked the attempt to end"

    @classmethod
    def _missing_(cls, value: object) -> "TroubleKind":
        """Read a kind of an agent of another version."""
        return cls.NONE
