"""Who submits, cancels and watches during a chaos run, each in a thread of its own."""

import heapq
import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import corral
from corral.domain.errors import CorralError, Refusal
from corral.wire import api
from corral.wire.slurm.sbatch import Here, read_batch
from tests.chaos.history import Acknowledged, Cancelled, Planned, Sighting
from tests.chaos.workload import Submission

RETRY_SECONDS: Final = 0.5
# what a head that was away has kept from being submitted
MOST_BEHIND_SECONDS: Final = 10.0
WATCH_SECONDS: Final = 2.0
PAGE: Final = 500


class Submitter:
    """Submits jobs at a rate, each until it is acknowledged: a try after one that was
    not answered has the same key. It also cancels the jobs whose plans say so.

    `has_room`: whether the cluster keeps up; nothing is submitted while it does not.
    """

    def __init__(
        self,
        root: Path,
        jobs: Iterable[Submission],
        pause_seconds: float,
        has_room: Callable[[], bool],
    ) -> None:
        self.plans: list[Planned] = []
        self.acknowledged: list[Acknowledged] = []
        self.cancelled: list[Cancelled] = []
        self.refused: list[str] = []
        self.unanswered = 0  # tries without an answer
        self._ids: dict[str, str] = {}
        self._cancels: list[tuple[float, str]] = []
        self._root = root
        self._jobs = iter(jobs)
        self._pause_seconds = pause_seconds
        self._has_room = has_room
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="submitter", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """Return once the last submission is answered, and the last cancel as well."""
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        with corral.Client(dir=self._root) as client:
            due = time.monotonic()
            for one in self._jobs:
                due = max(
                    due + self._pause_seconds, time.monotonic() - MOST_BEHIND_SECONDS
                )
                if self._over.wait(max(0.0, due - time.monotonic())):
                    break
                while not self._has_room() and not self._over.wait(RETRY_SECONDS):
                    self._cancel_due(client, time.monotonic())
                if self._over.is_set():
                    break
                self._submit(client, one)
                self._cancel_due(client, time.monotonic())
            self._cancel_due(client, time.monotonic() + 60.0)

    def _submit(self, client: "corral.Client", one: Submission) -> None:
        spec = spec_of(one, self._root.parent)
        after = one.plans[0].after
        if after is not None:
            spec["after"] = [self._ids[after]] if after in self._ids else []
        self.plans += one.plans
        while True:
            try:
                jobs = client.submit(spec, key=one.key)
            except Refusal as error:
                self.refused.append(f"{one.key}: {error.message}")
                return
            except CorralError:
                self.unanswered += 1
                time.sleep(RETRY_SECONDS)
            else:
                break
        at = time.time()
        for plan, job in zip(one.plans, jobs, strict=True):
            self._ids[plan.name] = job.id
            self.acknowledged.append(Acknowledged(plan=plan.name, job=job.id, at=at))
            if plan.cancel_after is not None:
                heapq.heappush(
                    self._cancels, (time.monotonic() + plan.cancel_after, job.id)
                )

    def _cancel_due(self, client: "corral.Client", now: float) -> None:
        while self._cancels and self._cancels[0][0] <= now:
            _, job = heapq.heappop(self._cancels)
            while True:
                try:
                    answer = client.cancel(job)
                    break
                except Refusal:
                    return
                except CorralError:
                    time.sleep(RETRY_SECONDS)
            self.cancelled.append(
                Cancelled(job=job, at=time.time(), state=answer.state)
            )


def spec_of(one: Submission, directory: Path) -> dict[str, Any]:
    """The spec of the submission; of a batch script what sbatch would submit."""
    if not one.script:
        return dict(one.spec)
    path = {"PATH": os.environ["PATH"], "HOME": str(directory)}
    here = Here(
        directory=str(directory), host="here", now=datetime.now(UTC), environment=path
    )
    return dict(
        read_batch([f"{one.key}.sh"], one.script, here, name=f"{one.key}.sh").spec
    )


class Watcher:
    """Lists all jobs again and again, and records what differs from the listing
    before."""

    def __init__(self, root: Path) -> None:
        self.sightings: list[Sighting] = []
        self.answers: list[float] = []
        self.unfinished = 0
        self._known: dict[str, tuple[Any, ...]] = {}
        self._root = root
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watcher", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        with corral.Client(dir=self._root) as client:
            while not self._over.wait(WATCH_SECONDS):
                with suppress(CorralError):
                    jobs = all_jobs(client)
                    self.answers.append(time.time())
                    self._take(jobs, self.answers[-1])

    def _take(self, jobs: Sequence[api.JobView], at: float) -> None:
        self.unfinished = sum(not job.is_over for job in jobs)
        for job in jobs:
            seen = (job.state, job.exit_code, job.attempt, job.ended_at)
            if self._known.get(job.id) != seen:
                self._known[job.id] = seen
                state, code, attempt, ended = seen
                self.sightings.append(
                    Sighting(
                        at=at,
                        job=job.id,
                        state=state,
                        exit_code=code,
                        attempt=attempt,
                        ended_at=ended,
                    )
                )


def all_jobs(client: "corral.Client") -> list[api.JobView]:
    """Every job that the head has, newest first. Raises: CorralError."""
    found: list[api.JobView] = []
    while True:
        before = found[-1].id if found else None
        page = client.jobs(everything=True, limit=PAGE, before=before)
        found += page
        if len(page) < PAGE:
            return found
