"""Look-up of the nodes that have content, by a request to the head."""

import logging
from collections.abc import Callable

import msgspec

from corral.domain.errors import CorralError
from corral.wire.content_messages import PEERS, ContentPeers

log = logging.getLogger(__name__)


class PeerLookup:
    """Asks the head for nodes with content. `fetch` returns the body of the head's
    answer."""

    def __init__(self, fetch: Callable[[str], bytes]) -> None:
        self._fetch = fetch

    def peers(self, key: str) -> ContentPeers:
        """Return the nodes that have the content of this key or are fetching it; none
        while the head does not answer."""
        try:
            return msgspec.json.decode(self._fetch(PEERS + key), type=ContentPeers)
        except (CorralError, ValueError) as trouble:
            log.warning("the head names no nodes with content: %s", trouble)
            return ContentPeers()
