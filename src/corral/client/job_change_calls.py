"""API calls that change jobs, each as an ApiCall value, and the methods of Client and
AsyncClient for them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, TypeVar

from corral.client.api_calls import ApiCall, job_path, read_as

if TYPE_CHECKING:
    from corral.domain.requests import JobChange
    from corral.wire import api
    from corral.wire.signals import To

T = TypeVar("T")


def change_job_call(
    name: str, to: Literal["cancel", "suspend", "resume", "requeue"]
) -> "ApiCall[api.JobDetail]":
    path = f"{job_path(name)}/{to}"
    return ApiCall(
        method="POST",
        path=path,
        read=read_as("api.JobDetail"),
        repeatable=to in ("cancel", "suspend"),
    )


def change_jobs_call(
    names: Sequence[str], to: "JobChange"
) -> "ApiCall[api.JobsChanged]":
    return ApiCall(
        method="POST",
        path="/v1/jobs/changes",
        json={"jobs": list(names), "to": to},
        read=read_as("api.JobsChanged"),
        repeatable=to in ("cancel", "suspend"),
    )


def signal_call(name: str, signal: str, to: "To | None") -> "ApiCall[api.JobDetail]":
    body = {"signal": signal, "to": to}
    path = f"{job_path(name)}/signal"
    return ApiCall(
        method="POST",
        path=path,
        json=body,
        read=read_as("api.JobDetail"),
        repeatable=False,
    )


class SyncJobChanges:
    """Methods of `Client` that change jobs."""

    def _call(self, call: ApiCall[T]) -> T:
        raise NotImplementedError

    def cancel(self, job: str) -> "api.JobDetail":
        return self._call(change_job_call(job, "cancel"))

    def suspend(self, job: str) -> "api.JobDetail":
        return self._call(change_job_call(job, "suspend"))

    def resume(self, job: str) -> "api.JobDetail":
        return self._call(change_job_call(job, "resume"))

    def requeue(self, job: str) -> "api.JobDetail":
        """Stop the job's attempt after a checkpoint, and put the job back in its old
        place in the queue."""
        return self._call(change_job_call(job, "requeue"))

    def change_jobs(self, names: Sequence[str], to: "JobChange") -> "api.JobsChanged":
        """Cancel, suspend, resume or requeue these jobs by one request. The name of an
        array means all of its jobs that have not ended."""
        return self._call(change_jobs_call(names, to))

    def signal(
        self, job: str, signal: str, *, to: "To | None" = None
    ) -> "api.JobDetail":
        """Send a signal, for example USR1, SIGUSR1 or 10, to the processes of the job.
        The job is not cancelled by this.

        Args:
            to: `ranks`: the ranks and all processes that they have started (for a batch
                script, its steps); `batch`: only the shell of each rank; `all`: both.
                None: both for a batch script, else the ranks.
        """
        return self._call(signal_call(job, signal, to))


class AsyncJobChanges:
    """Methods of `AsyncClient` that change jobs."""

    async def _call(self, call: ApiCall[T]) -> T:
        raise NotImplementedError

    async def cancel(self, job: str) -> "api.JobDetail":
        return await self._call(change_job_call(job, "cancel"))

    async def suspend(self, job: str) -> "api.JobDetail":
        return await self._call(change_job_call(job, "suspend"))

    async def resume(self, job: str) -> "api.JobDetail":
        return await self._call(change_job_call(job, "resume"))

    async def requeue(self, job: str) -> "api.JobDetail":
        return await self._call(change_job_call(job, "requeue"))

    async def change_jobs(
        self, names: Sequence[str], to: "JobChange"
    ) -> "api.JobsChanged":
        return await self._call(change_jobs_call(names, to))

    async def signal(
        self, job: str, signal: str, *, to: "To | None" = None
    ) -> "api.JobDetail":
        return await self._call(signal_call(job, signal, to))
