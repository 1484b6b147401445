"""Replicas that keep the answers to /v1/responses: a request that continues one goes to
the replica that has it."""

import re
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from corral.route.choice import ReplicaState

REMEMBERED: Final = 10_000
LOOKED_AT_BYTES: Final = 4096
_ID: Final = re.compile(rb'"id"\s*:\s*"(resp_[^"\\]{1,200})"')


class ResponsePlaces:
    """Newest responses of one service, and the names of their replicas."""

    __slots__ = ("_places",)

    def __init__(self) -> None:
        self._places: OrderedDict[str, str] = OrderedDict()

    def note(self, answer: bytes, replica: str) -> bool:
        """Remember the response whose answer begins so; return whether its id was
        there."""
        match = _ID.search(answer, 0, LOOKED_AT_BYTES)
        if match is None:
            return False
        self._places[match[1].decode(errors="replace")] = replica
        if len(self._places) > REMEMBERED:
            self._places.popitem(last=False)
        return True

    def find(self, response: str) -> str | None:
        """Return the replica of a response; None if it is not known here, because
        another process of a gateway has passed it on."""
        return self._places.get(response)


def state_of_place(
    choices: Sequence[Sequence[ReplicaState]],
    place: str,
    excluded: Sequence[str],
    now: float,
) -> ReplicaState | None:
    """Return the state of a replica that keeps a response; None if it cannot take
    requests now. Its limit does not count, because no other replica can answer."""
    for states in choices:
        for state in states:
            if state.name == place and place not in excluded:
                return state if state.ejected_until <= now else None
    return None
