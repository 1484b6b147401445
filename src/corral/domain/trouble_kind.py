"""Kinds of problems with an attempt that an agent reports."""

from corral.domain.coded import Coded


class TroubleKind(Coded):
    """Kind of a problem that an attempt has met, for programs; a sentence describes the
    same problem for people."""

    NONE = "", "no code; the sentence describes the problem"
    SETUP = "setup", "the command in `setup` failed, so the ranks were not started"
    ASKED_TO_END = "asked_to_end", "the batch system asked the attempt to end"

    @classmethod
    def _missing_(cls, value: object) -> "TroubleKind":
        """Return NONE for a kind that an agent of another version sent."""
        return cls.NONE
