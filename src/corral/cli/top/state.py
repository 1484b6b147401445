"""State of `corral top`: the newest answers, and whether the head responds. No I/O."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from corral.wire import api
    from corral.wire import gpus as answers


@dataclass(frozen=True, slots=True)
class HeadLink:
    """Whether the head answered the last request. `since`: the wall-clock time of the
    first request without an answer; `why` and `hint`: the error of the head, or of the
    client if it could not reach the head."""

    live: bool = True
    since: float = 0.0
    why: str = ""
    hint: str = ""


@dataclass(frozen=True, kw_only=True)
class TopState:
    """The newest answers of the head; None: no answer yet. `more`: there are jobs
    beyond those listed. `at`: the wall-clock time of the newest answer."""

    status: "api.Status | None" = None
    gpus: "answers.GpusNow | None" = None
    jobs: "Sequence[api.JobView]" = ()
    more: bool = False
    at: float = 0.0
    link: HeadLink = HeadLink()

    @cached_property
    def job_of(self) -> "Mapping[str, api.JobView]":
        return {job.id: job for job in self.jobs}

    @cached_property
    def gpus_of(self) -> "Mapping[str, answers.GpusOfNode]":
        return (
            {} if self.gpus is None else {node.node: node for node in self.gpus.nodes}
        )

    @cached_property
    def busy_of(self) -> Mapping[str, float]:
        """Return the average utilization of the GPUs of each job, by job id."""
        busy_by_job: dict[str, list[float]] = {}
        for node in self.gpus.nodes if self.gpus is not None else ():
            for holders, busy in zip(node.holders, node.utilisation, strict=True):
                if holders and busy is not None:
                    for job in holders.split(","):
                        busy_by_job.setdefault(job, []).append(busy)
        return {job: sum(values) / len(values) for job, values in busy_by_job.items()}

    @cached_property
    def watts(self) -> float | None:
        """Return the total power of all GPUs in watts; None if no GPU reports it."""
        watt_readings = [
            watts
            for node in (self.gpus.nodes if self.gpus is not None else ())
            for watts in node.power_watts
            if watts is not None
        ]
        return sum(watt_readings) if watt_readings else None

    @cached_property
    def held_busy(self) -> float | None:
        """Return the mean utilization of all allocated GPUs; None if unknown."""
        busy_readings = [
            busy
            for node in (self.gpus.nodes if self.gpus is not None else ())
            for holders, busy in zip(node.holders, node.utilisation, strict=True)
            if holders and busy is not None
        ]
        return sum(busy_readings) / len(busy_readings) if busy_readings else None

    def as_json(self) -> dict[str, Any]:
        return {
            "status": self.status.model_dump(mode="json")
            if self.status is not None
            else None,
            "gpus": self.gpus.model_dump(mode="json")
            if self.gpus is not None
            else None,
            "jobs": [job.model_dump(mode="json") for job in self.jobs],
            "more_jobs": self.more,
        }
