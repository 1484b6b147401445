"""Phases of a run in which it makes no steps, such as an evaluation or a save. The shim
receives them, so that a long phase is no hang."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from corral.train.shim_channel import Channel

PHASE_LETTERS: Final = 64


class WorkPhases:
    """Phases in which this rank is, one inside the other. `channel`: None outside
    Corral."""

    def __init__(self, channel: Channel | None) -> None:
        self._channel = channel
        self._names: list[str] = []

    @contextmanager
    def enter(self, name: str) -> Iterator[None]:
        """Report that the rank is in this phase while the block runs.

        Raises: ValueError if the name is empty, too long or of several lines.
        """
        if not name or len(name) > PHASE_LETTERS or not name.isprintable():
            raise ValueError(
                f"the name of a phase must have 1 to {PHASE_LETTERS} letters, not {name!r}"
            )
        self._names.append(name)
        self._report()
        try:
            yield
        finally:
            self._names.pop()
            self._report()

    def _report(self) -> None:
        if self._channel is not None:
            self._channel.phase(self._names[-1] if self._names else "")
