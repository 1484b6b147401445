"""Probes of the replicas of services: while the ranks of a replica run, its first node
requests a path of it again and again. A replica is ready while it answers with 2xx; that
of an engine, once the engine has also shown that it serves its model."""

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from corral.agent.model_check import check_model
from corral.agent.probe_result import (
    ProbeKind,
    ProbeResult,
    ProbeTarget,
    failed_probe,
)
from corral.domain.bounds import PROBE_LETTERS, cut
from corral.domain.desired_state import Launch
from corral.domain.job import ModelCheck
from corral.domain.observed_state import AttemptKey, Phase, Seen
from corral.domain.units import duration_text

PROBE_SECONDS: Final = 1.0  # between probes, until one is answered
READY_PROBE_SECONDS: Final = 2.0
ANSWER_SECONDS: Final = 2.0
ANSWER_BYTES: Final = 4096
FAILED_PROBES: Final = 3  # in a row, after which a replica is not ready any more
# the same for probes that were not answered in time, because engines may be busy
UNANSWERED_SECONDS: Final = 30.0
CHECK_TEXT: Final = "waits until the engine lists its model and completes a token"
# phases in which a replica takes no requests, and what is reported then
_ENDING: Final = {
    Phase.STOPPING: "its ranks are being stopped",
    Phase.ENDED: "its ranks have ended",
    Phase.REFUSED: "its ranks could not be started",
}
_STATUS: Final = re.compile(rb"\AHTTP/1\.\d (\d{3})(?: ([^\r\n]*))?\r?\n")
_HEAD_END: Final = re.compile(rb"\r?\n\r?\n")
_CHUNKED: Final = re.compile(rb"^transfer-encoding:[^\r\n]*chunked", re.I | re.M)


@dataclass(slots=True)
class Readiness:
    """Readiness of a replica, by the results of its probes. Times are seconds of one
    clock.

    `is_ready` None: not known yet, because an earlier agent started the replica.
    `since` is the time of the last probe that succeeded; before the first one, the time
    at which the probes began.
    """

    is_ready: bool | None
    since: float
    text: str = ""
    _failures: int = 0  # in a row
    _unanswered: int = 0  # of these, the ones without an answer in time

    def take(self, result: ProbeResult, now: float) -> bool:
        """Add the result of a probe. Return whether the readiness has changed."""
        before = self.is_ready
        if result.kind == ProbeKind.READY:
            self.is_ready, self.since, self.text = True, now, ""
            self._failures = self._unanswered = 0
        else:
            self._add_failure(result, now - self.since)
        return before != self.is_ready

    def _add_failure(self, result: ProbeResult, seconds: float) -> None:
        self._failures += 1
        self._unanswered += result.kind == ProbeKind.NOT_ANSWERED
        is_long = seconds >= UNANSWERED_SECONDS
        counted = self._failures - (0 if is_long else self._unanswered)
        if counted >= FAILED_PROBES:
            self.is_ready = False
        text = result.text
        if result.kind != ProbeKind.NOT_READY:
            text = f"{text} for {_whole_seconds_text(seconds)}"
        self.text = cut(text, PROBE_LETTERS)


def _whole_seconds_text(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 59.5 else duration_text(seconds)


@dataclass(slots=True)
class _ProbedReplica:
    """Probes of one replica. `check` is what its engine has not shown yet; `is_checked`
    says whether a check has begun. An engine that an earlier agent has started may sleep
    or be busy, so it gets no request for a completion until a probe of it has failed."""

    target: ProbeTarget
    readiness: Readiness
    check: ModelCheck | None
    is_checked: bool = False
    probing: asyncio.Task[None] | None = None

    async def probe(self) -> ProbeResult:
        """Probe the replica once, and check its engine until it has passed once."""
        result = await probe(self.target)
        if self.check is None or result.kind != ProbeKind.READY:
            return result
        is_new = self.readiness.is_ready is not None
        if is_new and not self.is_checked:
            self.is_checked = True
            self.readiness.text = CHECK_TEXT
        result = await check_model(self.target, self.check, with_completion=is_new)
        if result.kind == ProbeKind.READY:
            self.check = None
        return result

    def stop(self) -> None:
        if self.probing is not None:
            self.probing.cancel()


class ReadinessProbes:
    """Probes of all replicas whose first node this is. `on_change` is called when a
    probe has changed the readiness of one of them."""

    def __init__(self, on_change: Callable[[], None]) -> None:
        self._on_change = on_change
        self._replicas: dict[AttemptKey, _ProbedReplica] = {}

    def follow(
        self, launches: Mapping[AttemptKey, Launch], seens: Iterable[Seen]
    ) -> None:
        """Probe the replicas that run, and end the probes of all others.

        Args:
            launches: The attempts that are to run.
            seens: The state of all attempts on the node.
        """
        phases = {seen.key: seen.phase for seen in seens}
        for key in self._replicas.keys() - phases.keys():
            self._replicas.pop(key).stop()
        for key, phase in phases.items():
            launch = launches.get(key)
            if launch is not None and key not in self._replicas:
                self._add_replica(launch, phase)
            replica = self._replicas.get(key)
            if replica is None:
                continue
            if phase in _ENDING:
                replica.stop()
            elif phase == Phase.UP and replica.probing is None:
                replica.probing = asyncio.create_task(self._keep_probing(replica))

    def _add_replica(self, launch: Launch, phase: Phase) -> None:
        if launch.replica is None or launch.node_rank != 0:
            return
        target = ProbeTarget(
            host=launch.master_address,
            port=launch.listening_port,
            path=launch.replica.probe,
            key=launch.replica.key,
        )
        is_ready = False if phase == Phase.STARTING else None
        now = asyncio.get_running_loop().time()
        readiness = Readiness(is_ready, now)
        self._replicas[launch.key] = _ProbedReplica(
            target, readiness, launch.replica.model_check
        )

    def reported(self, seens: Iterable[Seen]) -> tuple[Seen, ...]:
        """Return the attempts, those of replicas with their readiness."""
        return tuple(self._with_readiness(seen) for seen in seens)

    def _with_readiness(self, seen: Seen) -> Seen:
        replica = self._replicas.get(seen.key)
        if replica is None:
            return seen
        if seen.phase in _ENDING:
            return replace(seen, is_ready=False, probe_text=_ENDING[seen.phase])
        readiness = replica.readiness
        return replace(
            seen,
            is_ready=readiness.is_ready,
            probe_text=readiness.text,
            address=replica.target.host if readiness.is_ready else "",
        )

    async def _keep_probing(self, replica: _ProbedReplica) -> None:
        """Probe the replica for ever."""
        clock = asyncio.get_running_loop().time
        readiness = replica.readiness
        readiness.since = clock()
        while True:
            if readiness.take(await replica.probe(), clock()):
                self._on_change()
            await asyncio.sleep(
                READY_PROBE_SECONDS if readiness.is_ready else PROBE_SECONDS
            )

    async def close(self) -> None:
        """End all probes."""
        tasks = [
            replica.probing
            for replica in self._replicas.values()
            if replica.probing is not None
        ]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def probe(target: ProbeTarget) -> ProbeResult:
    """Request the probe path once. All errors of the connection are in the result."""
    answer = bytearray()
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            await _read_answer(target, answer)
    except TimeoutError:
        if not _is_decided(answer):
            text = f"no answer to {target.request_text} on port {target.port}"
            return failed_probe(target, ProbeKind.NOT_ANSWERED, text)
    except ConnectionRefusedError:
        text = f"connection refused on port {target.port} of {target.host}"
        return failed_probe(target, ProbeKind.NOT_CONNECTED, text)
    except (OSError, ValueError) as error:
        if not answer:
            text = f"no connection to port {target.port} of {target.host} ({error})"
            return failed_probe(target, ProbeKind.NOT_CONNECTED, text)
    return _result_of(target, bytes(answer))


async def _read_answer(target: ProbeTarget, answer: bytearray) -> None:
    """Add the beginning of the answer to `answer`, as much as is needed.

    Raises: OSError, ValueError from the connection.
    """
    reader, writer = await asyncio.open_connection(
        target.host, target.port, limit=ANSWER_BYTES
    )
    try:
        writer.write(target.request)
        while len(answer) < ANSWER_BYTES and not _is_success(answer):
            data = await reader.read(ANSWER_BYTES - len(answer))
            if not data:
                return
            answer += data
    finally:
        writer.close()


def _is_success(answer: bytes | bytearray) -> bool:
    """Return whether this is the complete head of an answer with 2xx."""
    status = _STATUS.match(answer)
    return (
        status is not None
        and status.group(1).startswith(b"2")
        and _HEAD_END.search(answer) is not None
    )


def _is_decided(answer: bytes | bytearray) -> bool:
    """Return whether more of the answer would not change the result."""
    status = _STATUS.match(answer)
    return status is not None and (
        _is_success(answer) or not status.group(1).startswith(b"2")
    )


def _result_of(target: ProbeTarget, answer: bytes) -> ProbeResult:
    """Return the result of a probe by the first bytes of its answer."""
    if _is_success(answer):
        return ProbeResult(ProbeKind.READY)
    request_text = target.request_text
    status = _STATUS.match(answer)
    if status is None:
        fault = "the answer is not HTTP" if answer else "the connection was closed"
        return failed_probe(target, ProbeKind.NOT_READY, f"{request_text}: {fault}")
    code = status.group(1).decode()
    if code.startswith("2"):
        is_long = len(answer) >= ANSWER_BYTES
        fault = f"are longer than {ANSWER_BYTES:,} bytes" if is_long else "do not end"
        text = f"{request_text}: {code}, but the headers of the answer {fault}"
        return failed_probe(target, ProbeKind.NOT_READY, text)
    reason = _body_of(answer) or status.group(2) or b""
    reason_text = reason.decode(errors="replace").strip()
    text = f"{request_text}: {code}{': ' if reason_text else ''}{reason_text}"
    return failed_probe(target, ProbeKind.NOT_READY, text)


def _body_of(answer: bytes) -> bytes:
    """Return the beginning of the body of an answer; empty without a body."""
    head_end = _HEAD_END.search(answer)
    if head_end is None:
        return b""
    body = answer[head_end.end() :]
    if _CHUNKED.search(answer, 0, head_end.start()):
        body = body.partition(b"\n")[2]  # the size of the first chunk is before it
    return body.strip()
