"""API calls for checkpoints of jobs, each as an ApiCall value, and the methods of Client
and AsyncClient for them."""

from typing import TYPE_CHECKING, Literal, TypeVar

from corral.client.api_calls import ApiCall, job_path, read_as

if TYPE_CHECKING:
    from corral.wire import api

T = TypeVar("T")


def checkpoint_list_call(job: str) -> "ApiCall[api.Checkpoints]":
    return ApiCall(
        method="GET",
        path=f"{job_path(job)}/checkpoints",
        read=read_as("api.Checkpoints"),
    )


def change_checkpoint_call(
    job: str,
    step: int,
    to: Literal["pin", "unpin", "rm"],
    *,
    attempt: int | None = None,
    force: bool = False,
) -> "ApiCall[api.CheckpointView]":
    return ApiCall(
        method="POST",
        path=f"{job_path(job)}/checkpoints/{step}",
        json={"to": to, "attempt": attempt, "force": force},
        read=read_as("api.CheckpointView"),
        repeatable=to != "rm",
    )


def go_back_call(job: str, step: int) -> "ApiCall[api.JobDetail]":
    return ApiCall(
        method="POST",
        path=f"{job_path(job)}/resume",
        json={"step": step},
        read=read_as("api.JobDetail"),
        repeatable=False,
    )


class SyncCheckpoints:
    """Methods of `Client` for checkpoints of jobs."""

    def _call(self, call: ApiCall[T]) -> T:
        raise NotImplementedError

    def checkpoint_list(self, job: str) -> "api.Checkpoints":
        """Return the recorded checkpoints of a job, and warnings about the rule by which
        they are kept."""
        return self._call(checkpoint_list_call(job))

    def change_checkpoint(
        self,
        job: str,
        step: int,
        to: Literal["pin", "unpin", "rm"],
        *,
        attempt: int | None = None,
        force: bool = False,
    ) -> "api.CheckpointView":
        """Pin, unpin or remove the checkpoint of a step. For example:

        client.change_checkpoint("train", 400, "pin")
        """
        call = change_checkpoint_call(job, step, to, attempt=attempt, force=force)
        return self._call(call)

    def go_back(self, job: str, step: int) -> "api.JobDetail":
        """Resume a suspended job from its checkpoint of this step, not from its newest
        one."""
        return self._call(go_back_call(job, step))


class AsyncCheckpoints:
    """Methods of `AsyncClient` for checkpoints of jobs."""

    async def _call(self, call: ApiCall[T]) -> T:
        raise NotImplementedError

    async def checkpoint_list(self, job: str) -> "api.Checkpoints":
        """Return the recorded checkpoints of a job, and warnings about the rule by which
        they are kept."""
        return await self._call(checkpoint_list_call(job))

    async def change_checkpoint(
        self,
        job: str,
        step: int,
        to: Literal["pin", "unpin", "rm"],
        *,
        attempt: int | None = None,
        force: bool = False,
    ) -> "api.CheckpointView":
        """Pin, unpin or remove the checkpoint of a step."""
        call = change_checkpoint_call(job, step, to, attempt=attempt, force=force)
        return await self._call(call)

    async def go_back(self, job: str, step: int) -> "api.JobDetail":
        """Resume a suspended job from its checkpoint of this step, not from its newest
        one."""
        return await self._call(go_back_call(job, step))
