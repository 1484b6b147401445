"""Kinds of problems with an attempt that an agent reports."""

from corral.domain.coded import Coded


class TroubleKind(Coded):
    """Kind of a problem with an attempt, in addition to the sentence that describes the
    problem."""

    NONE = "", "the sentence says all"
    SETUP = "setup", "the command in `setup` failed, so the ranks were not started"
    ASKED_TO_END = "asked_to_end", "the batch system asked the attempt to end"

    @classmethod
    def _missing_(cls, value: object) -> "TroubleKind":
        """Return NONE for a kind that an agent of another version sent."""
        return cls.NONE
