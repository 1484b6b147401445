"""Counters that a gateway reports: whole sums since the start of each of its processes.
Counters only grow; gauges say what is under way now."""

from typing import Annotated

import msgspec

Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 60)]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e15)]
# without control characters, which no store could keep
ReportName = Annotated[
    str, msgspec.Meta(max_length=200, pattern=r"\A[^\x00-\x1f\x7f]*\Z")
]
ProcessName = Annotated[
    str, msgspec.Meta(min_length=8, max_length=64, pattern=r"\A[0-9a-z-]+\Z")
]


class ReportedTokens(msgspec.Struct, frozen=True):
    """Tokens of one caller; `cached` are part of `prompt`. `requests`: those that a
    replica has answered."""

    prompt: Count = 0
    cached: Count = 0
    output: Count = 0
    requests: Count = 0


class ReportedHistogram(msgspec.Struct, frozen=True):
    """Latencies by the bounds of the report, and their sum in seconds."""

    counts: tuple[Count, ...] = ()
    sum: Seconds = 0.0


class ReportedRevision(msgspec.Struct, frozen=True):
    """Counters of a revision's replicas; revision None has requests that reached none.

    Args:
        requests: Ended requests by the status of their answer.
        losses: Attempts that were lost, by their kind.
        tokens: Tokens by the name of the caller.
        prefill_seconds: Times of prompts that its prefill replicas have computed, with
            the bounds of `ttft`.
    """

    revision: int | None = None
    requests: dict[int, Count] = {}
    losses: dict[ReportName, Count] = {}
    tokens: dict[ReportName, ReportedTokens] = {}
    ttft: ReportedHistogram = ReportedHistogram()
    itl: ReportedHistogram = ReportedHistogram()
    request_seconds: ReportedHistogram = ReportedHistogram()
    prefill_seconds: ReportedHistogram = ReportedHistogram()


class ReportedReplica(msgspec.Struct, frozen=True):
    """Requests under way at a replica, and tokens of their prompts that it has not yet
    computed. Its counters are part of its revision's."""

    name: ReportName
    in_flight: Count = 0
    pending_tokens: Count = 0


class ReportedService(msgspec.Struct, frozen=True):
    """Counters of a service in one process; `in_flight` and `queued` are gauges. Those
    of batches are a part of them.

    Args:
        retries: Requests sent again to another replica.
        ejections: Times that a replica got no more requests because of its faults.
        client_gone: Requests whose client left before the end.
        streams_lost: Streams that ended because their replica was lost.
        streams_continued: Streams that another replica has continued.
        fallback: Tokens that the fallback has counted, by the name of the caller.
        fallback_requests: Requests that it has ended, by the status of their answer.
        prefill: Requests by where their prompt was computed, and why.
    """

    arrivals: Count = 0
    retries: Count = 0
    ejections: Count = 0
    client_gone: Count = 0
    streams_lost: Count = 0
    streams_continued: Count = 0
    in_flight: Count = 0
    queued: Count = 0
    batch_arrivals: Count = 0
    batch_in_flight: Count = 0
    batch_queued: Count = 0
    revisions: tuple[ReportedRevision, ...] = ()
    replicas: tuple[ReportedReplica, ...] = ()
    fallback: dict[ReportName, ReportedTokens] = {}
    fallback_requests: dict[int, Count] = {}
    prefill: dict[ReportName, Count] = {}


class ReportedCaller(msgspec.Struct, frozen=True):
    """Use of a group of callers that has limits. `in_flight` is a gauge; `refused`:
    requests that were refused, by the limit."""

    in_flight: Count = 0
    requests: Count = 0
    tokens: Count = 0
    refused: dict[ReportName, Count] = {}


class ReportedBudget(msgspec.Struct, frozen=True):
    """Use of a budget of tokens. `refused`: requests that were refused because of it."""

    tokens: Count = 0
    refused: Count = 0


class ReportedProcess(msgspec.Struct, frozen=True):
    """Counters of one process, by service, and the use of limited groups of callers.
    `process` is its random id."""

    process: ProcessName
    services: dict[ReportName, ReportedService] = {}
    callers: dict[ReportName, ReportedCaller] = {}
    budgets: dict[ReportName, ReportedBudget] = {}


class CountersReport(msgspec.Struct, frozen=True):
    """Counters of all processes of a gateway. `bounds`: upper bounds of the histograms
    in seconds, by name."""

    bounds: dict[ReportName, tuple[float, ...]] = {}
    processes: tuple[ReportedProcess, ...] = ()


def decode_counters(text: bytes) -> CountersReport:
    """Return the counters of a JSON text. Raises: msgspec.DecodeError, which is a
    ValueError."""
    return msgspec.json.decode(text, type=CountersReport)
