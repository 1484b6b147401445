"""Errors of the content cache."""

from corral.domain.errors import Refusal, Trouble


class ContentRefused(Refusal):
    """The content does not exist, may not be read, or is not what the spec pins."""

    code = "content_refused"


class ContentTrouble(Trouble):
    """The content cannot be fetched now: its source, the network or the disk fails."""

    code = "content_trouble"


class RangeRefused(ContentTrouble):
    """The server has no bytes of the file from this offset on."""

    code = "range_refused"


class FetchCancelled(Trouble):
    """No attempt waits for the content any more."""

    code = "fetch_cancelled"
