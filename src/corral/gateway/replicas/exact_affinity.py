"""Exact affinity of one service: subscriptions to the cache events of its replicas, and
the tokens of its prompts.

No request waits for it: a prompt whose tokens are not there yet is judged by the
approximate index, and its tokens are requested meanwhile.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import Final

from corral.gateway.replicas.prompt_tokenizer import TokenizeRequest, tokenize_body
from corral.gateway.replicas.replica_pool import ReplicaPool
from corral.route.exact_index import ExactPromptIndex
from corral.route.prompt_index import BLOCK_BYTES, PromptIndex
from corral.route.prompt_tokens import PromptTokens
from corral.wire.gateway_routes import ReplicaEntry

log = logging.getLogger(__name__)

MOST_TOKENIZING: Final = 4
MOST_PROMPT_BYTES: Final = 4 * 1024 * 1024
TOKENIZE_SECONDS: Final = 10.0


class ExactAffinity:
    """Exact indexes of the replicas that publish the events of their caches.

    Args:
        service: Name of the service, for messages.
    """

    __slots__ = ("_can_follow", "_followed", "_service", "_tokenizing", "_tokens")

    def __init__(self, service: str) -> None:
        self._service = service
        self._tokens = PromptTokens()
        self._followed: dict[str, tuple[ReplicaPool, Callable[[], None]]] = {}
        self._tokenizing: dict[int, TokenizeRequest] = {}
        self._can_follow: bool | None = None

    def index_of(self, replica: ReplicaEntry) -> PromptIndex:
        """Return a new index of the replica's prompt blocks."""
        if replica.kv_events is None or not self._has_zmq():
            return PromptIndex()
        return ExactPromptIndex(self._tokens)

    def _has_zmq(self) -> bool:
        if self._can_follow is None:
            self._can_follow = find_spec("zmq") is not None
            if not self._can_follow:
                log.warning(
                    "affinity of %s is approximate: pyzmq is not installed; run: "
                    "pip install 'corral[kv]'",
                    self._service,
                )
        return self._can_follow

    def follow(self, pools: Mapping[str, ReplicaPool]) -> None:
        """Subscribe to the replicas that are listed now, and to no others."""
        for name, (pool, stop) in list(self._followed.items()):
            if pools.get(name) is not pool:
                stop()
                del self._followed[name]
        for name, pool in pools.items():
            index = pool.state.index
            if name not in self._followed and isinstance(index, ExactPromptIndex):
                self._followed[name] = (pool, _subscribe(pool, index))

    def note_prompt(
        self, path: bytes, body: bytes, size: int, hashes: Sequence[int], now: float
    ) -> None:
        """Request the tokens of a prompt unless they are there.

        Args:
            body: Whole body of the request.
            size: Bytes of its prompt.
            hashes: Hashes of the prompt's blocks of text, at least one.
        """
        if not self._followed or self._tokens.has(hashes):
            return
        for request in [*self._tokenizing.values()]:
            if request.until < now:
                request.cancel()
        if hashes[-1] in self._tokenizing or size > MOST_PROMPT_BYTES:
            return
        pool = self._tokenizer()
        if pool is None or len(self._tokenizing) >= MOST_TOKENIZING:
            return
        text = tokenize_body(path, body)
        if text is None:
            return

        def receive(tokens: Sequence[int] | None) -> None:
            del self._tokenizing[hashes[-1]]
            if tokens is not None:
                self._tokens.add(hashes, size / BLOCK_BYTES, tokens)

        request = TokenizeRequest(pool, text, receive, now + TOKENIZE_SECONDS)
        self._tokenizing[hashes[-1]] = request
        request.start()

    def _tokenizer(self) -> ReplicaPool | None:
        """Return the replica that cuts the next prompt: the one with the least work
        among those whose events are followed without a gap."""
        live = [
            pool
            for pool, _ in self._followed.values()
            if isinstance(pool.state.index, ExactPromptIndex)
            and pool.state.index.view.is_live
            and not pool.state.ejected_until
        ]
        return min(live, key=lambda pool: pool.state.in_flight, default=None)

    def close(self) -> None:
        """End all subscriptions."""
        self.follow({})
        for request in [*self._tokenizing.values()]:
            request.cancel()


def _subscribe(pool: ReplicaPool, index: ExactPromptIndex) -> Callable[[], None]:
    """Subscribe to the events of a replica; return the function that ends it."""
    # loaded only where it is used: it is an extra
    from corral.gateway.replicas.kv_subscription import KvEndpoints, KvSubscription

    entry = pool.entry
    ports = entry.kv_events
    assert ports is not None
    host = f"[{entry.host}]" if ":" in entry.host else entry.host
    replay = None if ports.replay_port is None else f"tcp://{host}:{ports.replay_port}"
    endpoints = KvEndpoints(f"tcp://{host}:{ports.port}", replay)
    subscription = KvSubscription(entry.name, endpoints, index.view)
    subscription.start()
    return subscription.stop
