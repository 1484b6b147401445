"""Counters for the head: whole sums since the start of each process, as JSON.

A reader keeps the last state of each process id and adds the differences, so each
request is added exactly once, however often it reads.
"""

import hmac
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

from corral.domain.errors import SpecInvalid
from corral.gateway.counting.gateway_metrics import (
    NO_REPLICA,
    SERVICE_COUNTERS,
    ProcessCounters,
    ReplicaCounters,
    ServiceMetrics,
)
from corral.gateway.counting.latency_histogram import (
    ITL_BOUNDS,
    REQUEST_BOUNDS,
    TTFT_BOUNDS,
    LatencyHistogram,
)

COUNTERS_PATH: Final = b"/internal/counters"
LEAST_KEY_BYTES: Final = 16
_BOUNDS: Final = {
    "ttft": TTFT_BOUNDS,
    "itl": ITL_BOUNDS,
    "request_seconds": REQUEST_BOUNDS,
}


def read_counters_key(path: Path) -> bytes:
    """Return the key in a file, without the white space around it.

    Raises: SpecInvalid if it cannot be read or is shorter than LEAST_KEY_BYTES.
    """
    hint = f"write one, for example: openssl rand -hex 32 > {path}"
    try:
        key = path.read_bytes().strip()
    except OSError as error:
        raise SpecInvalid(
            f"{path} cannot be read: {error.strerror}", hint=hint
        ) from None
    if len(key) < LEAST_KEY_BYTES:
        raise SpecInvalid(
            f"{path}: a key has at least {LEAST_KEY_BYTES} bytes", hint=hint
        )
    return key


def is_counters_key(key: bytes | None, expected: bytes | None) -> bool:
    """Return whether a request may read the counters."""
    if key is None or expected is None:
        return False
    return hmac.compare_digest(key, expected)


def render_counters(processes: Iterable[ProcessCounters]) -> bytes:
    """Return the JSON text of the counters of all processes of a gateway."""
    return msgspec.json.encode(
        {
            "bounds": _BOUNDS,
            "processes": [
                {
                    "process": state.process,
                    "services": {
                        name: _service(metrics)
                        for name, metrics in state.services.items()
                    },
                    "callers": state.callers,
                    "budgets": state.budgets,
                }
                for state in processes
            ],
        }
    )


def _service(metrics: ServiceMetrics) -> dict[str, object]:
    """Return what happened at a service. Counters only grow, except `in_flight` and
    `queued`; those of a replica end when it leaves the routes, those of a revision
    stay."""
    counts: dict[str, object] = {
        field: getattr(metrics, field) for field in SERVICE_COUNTERS
    }
    return {
        **counts,
        "in_flight": metrics.in_flight,
        "queued": metrics.queued,
        "batch_in_flight": metrics.batch_in_flight,
        "batch_queued": metrics.batch_queued,
        "fallback": metrics.fallback.tokens,
        "fallback_requests": metrics.fallback.requests,
        "prefill": metrics.prefill,
        "revisions": [
            {"revision": revision, **_counters(counters)}
            for revision, counters in metrics.by_revision().items()
        ],
        "replicas": [
            {
                "name": name,
                "revision": counters.revision,
                "in_flight": counters.in_flight,
                "pending_tokens": counters.pending_tokens,
                **_counters(counters),
            }
            for name, counters in metrics.by_replica.items()
            if name != NO_REPLICA
        ],
    }


def _counters(counters: ReplicaCounters) -> dict[str, object]:
    return {
        "requests": counters.requests,
        "losses": counters.losses,
        "tokens": counters.tokens,
        "ttft": _histogram(counters.ttft),
        "itl": _histogram(counters.itl),
        "request_seconds": _histogram(counters.request_seconds),
        "prefill_seconds": _histogram(counters.prefill_seconds),
    }


def _histogram(histogram: LatencyHistogram) -> dict[str, object]:
    return {"counts": histogram.counts, "sum": histogram.sum}
