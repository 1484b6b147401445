"""Replicas that keep the answers to /v1/responses: a request for one, or one that
continues it, goes to the replica that has it, if the same user has made it."""

import re
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final, NamedTuple

from corral.gateway.routing.response_files import NotedResponse, ResponseFiles
from corral.route.choice import ReplicaState

REMEMBERED: Final = 10_000
LOOKED_AT_BYTES: Final = 4096
_ID: Final = re.compile(rb'"id"\s*:\s*"(resp_[^"\\]{1,200})"')


class ResponsePlace(NamedTuple):
    """Replica that keeps a response, and the user whose request made it."""

    replica: str
    owner: str


class SharedPlaces:
    """Places of responses that other processes of the gateway have noted, the newest of
    all services."""

    __slots__ = ("_places", "files")

    def __init__(self, files: ResponseFiles) -> None:
        self.files = files
        self._places: OrderedDict[tuple[str, str], ResponsePlace] = OrderedDict()

    def find(self, service: str, response: str) -> ResponsePlace | None:
        """Return the place of a response, also of one noted only now."""
        key = (service, response)
        if key not in self._places:
            for noted in self.files.read_news():
                place = ResponsePlace(noted.replica, noted.owner)
                noted_key = (noted.service, noted.response)
                earlier = self._places.get(noted_key)
                if not place.replica or not earlier or earlier.owner == place.owner:
                    self._places[noted_key] = place
            while len(self._places) > REMEMBERED:
                self._places.popitem(last=False)
        found_place = self._places.get(key)
        return found_place if found_place and found_place.replica else None


class ResponsePlaces:
    """Newest responses of one service, their replicas and their owners.

    Args:
        service: Name of the service.
        shared: What the other processes of the gateway know; None: there are none.
    """

    __slots__ = ("_places", "_service", "_shared")

    def __init__(self, service: str = "", shared: SharedPlaces | None = None) -> None:
        self._service = service
        self._shared = shared
        self._places: OrderedDict[str, ResponsePlace | None] = OrderedDict()

    def note(self, answer: bytes, replica: str, owner: str) -> bool:
        """Remember the response whose answer begins so; return whether its id was
        there."""
        match = _ID.search(answer, 0, LOOKED_AT_BYTES)
        if match is None:
            return False
        response = match[1].decode(errors="replace")
        earlier = self._places.get(response)
        if earlier is None or earlier.owner == owner:
            self._keep(response, ResponsePlace(replica, owner))
        return True

    def find(self, response: str, owner: str) -> str | None:
        """Return the replica of a response of this owner; None if it is not known."""
        place = self._place(response)
        return None if place is None or place.owner != owner else place.replica

    def is_of_another(self, response: str, owner: str) -> bool:
        """Return whether another user has made the response."""
        place = self._place(response)
        return place is not None and place.owner != owner

    def forget(self, response: str) -> None:
        """Forget a response that its replica has deleted."""
        self._keep(response, None)

    def _place(self, response: str) -> ResponsePlace | None:
        if response in self._places:
            return self._places[response]
        if self._shared is None:
            return None
        return self._shared.find(self._service, response)

    def _keep(self, response: str, place: ResponsePlace | None) -> None:
        self._places[response] = place
        if len(self._places) > REMEMBERED:
            self._places.popitem(last=False)
        if self._shared is not None:
            replica, owner = place or ("", "")
            noted = NotedResponse(self._service, response, replica, owner)
            self._shared.files.append(noted)


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
