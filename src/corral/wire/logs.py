"""Parts of a kept log, and lines found in it, as they are answered."""

from corral.wire.job_parts import ForecastView


class LogRange(ForecastView):
    """Bytes of one rank's log, from `begin` to `end`. `oldest` and `newest` bound what
    is kept. `times`, where asked for: when each line reached the head, None where that
    is not known."""

    rank: int
    attempt: int
    begin: int
    end: int
    oldest: int
    newest: int
    data: str
    times: list[float | None] = []


class LogMatch(ForecastView):
    """One line that holds the text. `place`: the position of its first byte in the
    log."""

    rank: int
    place: int
    line: str


class LogMatches(ForecastView):
    """Lines that hold a text, by rank and place. `next`: from where to go on, "" at the
    end."""

    attempt: int
    matches: list[LogMatch]
    searched_bytes: int
    next: str
