"""Answers of the API with parts of a stored log, and with lines found in it."""

from corral.wire.job_parts import ForecastView


class LogRange(ForecastView):
    """Bytes of one rank's log, from `begin` to `end`. `oldest` and `newest` bound the
    bytes that are stored. `times`, if requested: when each line reached the head; None
    if that is unknown."""

    rank: int
    attempt: int
    begin: int
    end: int
    oldest: int
    newest: int
    data: str
    times: list[float | None] = []


class LogMatch(ForecastView):
    """One line that contains the text. `place`: the position of the first byte of the
    line in the log."""

    rank: int
    place: int
    line: str


class LogMatches(ForecastView):
    """Lines that contain a text, by rank and place. `next`: the position from which to
    continue; "" at the end."""

    attempt: int
    matches: list[LogMatch]
    searched_bytes: int
    next: str
