"""Replicas that keep the answers to /v1/responses: a request for one, or one that
continues it, goes to the replica that has it, if the same user has made it."""

import re
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final, NamedTuple

from corral.route.choice import ReplicaState

REMEMBERED: Final = 10_000
LOOKED_AT_BYTES: Final = 4096
_ID: Final = re.compile(rb'"id"\s*:\s*"(resp_[^"\\]{1,200})"')


class ResponsePlace(NamedTuple):
    """Replica that keeps a response, and the user whose request made it."""

    replica: str
    owner: str


class ResponsePlaces:
    """Newest responses of one service, their replicas and their owners."""

    __slots__ = ("_places",)

    def __init__(self) -> None:
        self._places: OrderedDict[str, ResponsePlace] = OrderedDict()

    def note(self, answer: bytes, replica: str, owner: str) -> bool:
        """Remember the response whose answer begins so; return whether its id was
        there."""
        match = _ID.search(answer, 0, LOOKED_AT_BYTES)
        if match is None:
            return False
        response = match[1].decode(errors="replace")
        earlier = self._places.get(response)
        if earlier is None or earlier.owner == owner:
            self._places[response] = ResponsePlace(replica, owner)
        if len(self._places) > REMEMBERED:
            self._places.popitem(last=False)
        return True

    def find(self, response: str, owner: str) -> str | None:
        """Return the replica of a response of this owner; None if it is not known here,
        because another process of a gateway has passed it on."""
        place = self._places.get(response)
        return None if place is None or place.owner != owner else place.replica

    def is_of_another(self, response: str, owner: str) -> bool:
        """Return whether another user has made the response."""
        place = self._places.get(response)
        return place is not None and place.owner != owner

    def forget(self, response: str) -> None:
        """Forget a response that its replica has deleted."""
        self._places.pop(response, None)


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
