"""Routes that a head hands to its gateways: services, replicas and callers as a whole
state under a version."""

from typing import Annotated, Final, Literal

import msgspec

ROUTES_PATH: Final = "/v1/routes"
COUNTERS_PATH: Final = "/v1/routes/counters"
# versions that one leader can give out; a later leader's are all higher
VERSIONS_OF_A_TERM: Final = 10**9

EntryName = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
# part of a limit that one gateway grants: the others have the rest
CallerLimit = Annotated[float, msgspec.Meta(gt=0)]
RevisionNumber = Annotated[int, msgspec.Meta(ge=1)]
# part of each request that a replica computes; "": all of it
ReplicaRoleName = Literal["", "prefill", "decode"]
# how the KV cache of a prompt gets from prefill to decode; "": they are not apart
TransferName = Literal["", "vllm", "sglang", "shared"]


class _Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of the state's objects: a field that is not known is refused."""


class KvEventsEntry(_Entry, frozen=True):
    """Ports on which a replica's engine publishes the events of its KV cache, and on
    which it replays those that were missed; None: it replays nothing."""

    port: Annotated[int, msgspec.Meta(ge=1, le=65535)]
    replay_port: Annotated[int, msgspec.Meta(ge=1, le=65535)] | None = None


class ReplicaEntry(_Entry, frozen=True):
    """Address of a replica, and the key that its engine requires.

    Args:
        revision: Revision of the service that it runs; None: the service has none.
        draining: Whether it gets no new requests, because it is to end.
        kv_events: Where its engine publishes the events of its KV cache; None: nowhere.
        role: Part of each request that it computes; "": all of it.
        bootstrap_port: Port at which decode replicas of SGLang meet this prefill replica;
            None: the engine's usual one.
    """

    name: EntryName
    host: EntryName
    port: Annotated[int, msgspec.Meta(ge=1, le=65535)]
    key: str | None = None
    revision: RevisionNumber | None = None
    draining: bool = False
    kv_events: KvEventsEntry | None = None
    role: ReplicaRoleName = ""
    bootstrap_port: Annotated[int, msgspec.Meta(ge=1, le=65535)] | None = None


class CanaryEntry(_Entry, frozen=True):
    """Trial of a revision: the share of the requests (0 to 1) that it gets."""

    revision: RevisionNumber
    share: Annotated[float, msgspec.Meta(ge=0, le=1)]


class AdapterEntry(_Entry, frozen=True):
    """LoRA adapter: the model name that leads to it, and where the engine finds it."""

    name: EntryName
    path: Annotated[str, msgspec.Meta(min_length=1, max_length=4096)]


class FallbackEntry(_Entry, frozen=True):
    """Another provider's API for requests that no replica can take.

    Args:
        url: Its address, up to /v1.
        model: Name of its model.
        key: Its API key.
        private_ok: Whether it may have a private address.
    """

    url: Annotated[str, msgspec.Meta(min_length=1, max_length=1000)]
    model: EntryName
    key: str | None = None
    private_ok: bool = False


class ServiceEntry(_Entry, frozen=True):
    """Service: the model names that lead to it, its replicas and its limits.

    Args:
        continues: How another replica continues a stream whose replica was lost: by the
            text so far, or by token ids as this engine returns them.
        adapter_calls: Engine whose requests load adapters and choose them.
        max_adapters: Most adapters that a replica has loaded.
        budgets: Names of the budgets of tokens that its requests use.
        transfer: How the KV cache of a prompt gets from its prefill replicas to those
            that decode; "": it has none.
    """

    name: EntryName
    models: Annotated[tuple[EntryName, ...], msgspec.Meta(min_length=1)]
    replicas: tuple[ReplicaEntry, ...] = ()
    deadline_seconds: Annotated[float, msgspec.Meta(gt=0, le=86400)] = 60.0
    body_bytes: Annotated[int, msgspec.Meta(ge=1, le=1 << 30)] = 10_000_000
    allow: tuple[EntryName, ...] | None = None
    queue_requests: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] = 1000
    continues: Literal["none", "text", "llama.cpp", "vllm"] = "none"
    canary: CanaryEntry | None = None
    adapters: tuple[AdapterEntry, ...] = ()
    adapter_calls: Literal["none", "vllm", "sglang", "llama.cpp"] = "none"
    max_adapters: Annotated[int, msgspec.Meta(ge=0, le=10_000)] = 0
    fallback: FallbackEntry | None = None
    budgets: tuple[EntryName, ...] = ()
    transfer: TransferName = ""


class CallerEntry(_Entry, frozen=True):
    """Caller: the hash of its key, and its limits.

    Args:
        group: Callers of the same group share their limits, which are the same; None:
            this one has its own.
        budget: Name of the budget of tokens that its requests use; None: no limit.
        key_budget: The same of its key alone.
    """

    name: EntryName
    key_sha256: str
    requests_per_minute: CallerLimit | None = None
    tokens_per_minute: CallerLimit | None = None
    concurrency: Annotated[int, msgspec.Meta(ge=0)] | None = None
    group: EntryName | None = None
    priority: Literal["high", "normal", "low", "batch"] = "normal"
    budget: EntryName | None = None
    key_budget: EntryName | None = None


class BudgetEntry(_Entry, frozen=True):
    """Budget of tokens.

    Args:
        part: Tokens of it that one gateway may still use.
        renews_at: When it is whole again (wall clock).
        limit: Tokens of the whole budget; None: not known.
        used: Tokens that all gateways had used when the head made the part; None: not
            known.
        seen: Tokens that the head had counted, by process of the gateway, when it made
            the part.
    """

    name: EntryName
    part: Annotated[int, msgspec.Meta(ge=0)]
    renews_at: float
    seen: dict[str, int] = {}
    limit: Annotated[int, msgspec.Meta(ge=0)] | None = None
    used: Annotated[int, msgspec.Meta(ge=0)] | None = None


class RoutesFile(_Entry, frozen=True):
    """Whole state of the routes."""

    version: Annotated[int, msgspec.Meta(ge=0)]
    services: tuple[ServiceEntry, ...] = ()
    callers: tuple[CallerEntry, ...] = ()
    open: bool = False
    budgets: tuple[BudgetEntry, ...] = ()


def encode_routes(routes: RoutesFile) -> bytes:
    """Return the JSON text of the routes."""
    return msgspec.json.encode(routes)


def decode_routes(text: bytes) -> RoutesFile:
    """Return the routes of a JSON text. Raises: msgspec.DecodeError."""
    return msgspec.json.decode(text, type=RoutesFile)
