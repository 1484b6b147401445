"""The unfinished work of a cluster as text: its services, with their replicas, and its
jobs."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from corral.cli.printing import clean
from corral.domain.errors import NotFound
from corral.domain.units import counted

if TYPE_CHECKING:
    from corral.client import Client
    from corral.wire import api
    from corral.wire import service_answers as shapes

MOST_NAMES: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class UnfinishedWork:
    """Services and unfinished jobs. The replicas of the services are among the jobs."""

    jobs: "Sequence[api.JobView]"
    services: "Sequence[shapes.ServiceRow]" = ()

    @classmethod
    def of(cls, client: "Client") -> Self:
        """Return the unfinished work of the cluster."""
        services: Sequence[shapes.ServiceRow] = ()
        with suppress(NotFound):  # an older head has none
            services = client.services()
        return cls(jobs=client.jobs(limit=10_000), services=services)

    def __bool__(self) -> bool:
        return bool(self.jobs or self.services)

    @property
    def jobs_of_users(self) -> "list[api.JobView]":
        """Return the jobs that are not replicas of a service."""
        services = {service.id for service in self.services}
        return [job for job in self.jobs if job.array not in services]

    @property
    def replicas(self) -> "list[api.JobView]":
        services = {service.id for service in self.services}
        return [job for job in self.jobs if job.array in services]

    @property
    def question(self) -> str:
        """Return the question whether to stop the work, and the cluster with it."""
        kinds = ["services"] * bool(self.services) + ["jobs"] * bool(self.jobs_of_users)
        return f"stop these {' and '.join(kinds)}, and the cluster?"

    @property
    def counts_text(self) -> str:
        """Return the numbers. For example: 1 service and 2 unfinished jobs"""
        jobs = self.jobs_of_users
        counts = [counted(len(self.services), "service")] * bool(self.services)
        if jobs or not counts:
            counts.append(counted(len(jobs), "unfinished job"))
        return " and ".join(counts)

    @property
    def continues_text(self) -> str:
        """Return what continues without the head. For example: 2 unfinished jobs
        continue"""
        is_single = len(self.services) + len(self.jobs_of_users) == 1
        return f"{self.counts_text} {'continues' if is_single else 'continue'}"

    def lines(self) -> list[str]:
        """Return a line for the services and one for the jobs. For example: 1 service:
        chat (2 of 2 replicas ready, 3 requests under way)"""
        lines = []
        if self.services:
            texts = [_service_text(service) for service in self.services]
            lines.append(f"{counted(len(texts), 'service')}: {_listed(texts)}")
        if jobs := self.jobs_of_users:
            texts = [f"{job.name} ({job.state})" for job in jobs]
            lines.append(f"{counted(len(texts), 'unfinished job')}: {_listed(texts)}")
        return lines


def _service_text(service: "shapes.ServiceRow") -> str:
    under_way = counted(service.rates.under_way, "request")
    return f"{clean(service.name)} ({service.ready_text}, {under_way} under way)"


def _listed(texts: Sequence[str]) -> str:
    further = len(texts) - MOST_NAMES
    remainder = f" and {further} more" if further > 0 else ""
    return ", ".join(texts[:MOST_NAMES]) + remainder


def awaited_text(
    work: UnfinishedWork, nodes: "Sequence[api.NodeView]", seconds: float
) -> str:
    """Return which jobs and replicas must end before the head ends. For example: waiting
    at most 135 s for 1 job to end: train (j3) on n2; node n2 is silent and does not
    answer."""
    jobs = [job for job in work.jobs_of_users if job.nodes]
    replicas = [job for job in work.replicas if job.nodes]
    counts = [
        counted(len(group), noun)
        for group, noun in ((replicas, "replica"), (jobs, "job"))
        if group
    ]
    if not counts:
        return ""
    texts = [
        f"{clean(job.name)} ({job.id}) on {','.join(job.nodes)}"
        for job in (*replicas, *jobs)
    ]
    job_node_ids = {node for job in (*replicas, *jobs) for node in job.nodes}
    mute = "".join(
        f"; node {node.id} is {node.liveness} and does not answer"
        for node in nodes
        if node.id in job_node_ids and node.liveness != "alive"
    )
    finish = "to finish and end" if replicas else "to end"
    return (
        f"waiting at most {seconds:.0f} s for {' and '.join(counts)} {finish}: "
        f"{_listed(texts)}{mute}"
    )
