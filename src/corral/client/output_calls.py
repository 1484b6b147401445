"""Calls about outputs, which are files that jobs wrote into their work folders, and
about the stacks of their processes; and the methods of `Client` for them."""

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

from corral.client.api_calls import ApiCall, read_as
from corral.client.head_proof import was_refused
from corral.client.head_target import Where, no_answer
from corral.client.output_files import Fetched, write_outputs
from corral.client.request_rules import headers, naps
from corral.domain.errors import Trouble, WrongHead

if TYPE_CHECKING:
    import httpx2

    from corral.client.head_target import HeadTarget
    from corral.wire import output_answers, stack_answers

T = TypeVar("T")


class FetchCutShort(Trouble):
    """The error for a transfer that ended early. Files that arrived completely are
    kept."""

    code = "cut_short"


def outputs(
    job: str, attempt: int | None, wait: float | None
) -> "ApiCall[output_answers.Outputs]":
    query_fields = {"attempt": attempt, "wait": None if wait is None else f"{wait:g}"}
    return ApiCall(
        method="GET",
        path=f"/v1/jobs/{quote(job, safe='')}/outputs",
        query={
            name: value for name, value in query_fields.items() if value is not None
        },
        read=read_as("output_answers.Outputs"),
    )


def stacks(job: str, rank: int | None) -> "ApiCall[stack_answers.Stacks]":
    return ApiCall(
        method="GET",
        path=f"/v1/jobs/{quote(job, safe='')}/stacks",
        query={} if rank is None else {"rank": rank},
        read=read_as("stack_answers.Stacks"),
    )


def query_of(
    path: str, attempt: int | None, node: str | None, rank: int | None
) -> dict[str, Any]:
    query_fields = {"path": path, "attempt": attempt, "node": node, "rank": rank}
    return {name: value for name, value in query_fields.items() if value is not None}


def address_of(job: str) -> str:
    return f"/v1/jobs/{quote(job, safe='')}/files"


def cut_short(job: str, path: str, error: Exception) -> FetchCutShort:
    return FetchCutShort(
        f"the transfer of {job}:{path} ended early: {error}",
        hint="run the same command again",
    )


class SyncOutputs:
    """Methods of `Client` for outputs."""

    _where: Where

    def _call(self, call: ApiCall[T]) -> T:
        raise NotImplementedError

    def _client(self, target: "HeadTarget") -> "httpx2.Client":
        raise NotImplementedError

    def outputs(
        self, job: str, *, attempt: int | None = None, wait: float | None = None
    ) -> "output_answers.Outputs":
        """Return the files that the newest attempt, or the requested one, wrote into
        its work folders.

        Args:
            wait: Seconds that a node may take to answer, at most 5.
        """
        return self._call(outputs(job, attempt, wait))

    def stacks(self, job: str, *, rank: int | None = None) -> "stack_answers.Stacks":
        """Return the stacks of the Python processes of a running job; with `rank`, only
        of the node that runs this rank. The processes go on."""
        return self._call(stacks(job, rank))

    def fetch(
        self,
        job: str,
        path: str,
        to: str | Path,
        *,
        attempt: int | None = None,
        node: str | None = None,
        rank: int | None = None,
    ) -> Fetched:
        """Copy a file or folder of the job's work folder to this machine.

        A file is written to `to`, or into `to` if it is a folder; a folder is copied as
        `cp -r` does.
        Raises: Refusal, Trouble; FetchCutShort if the transfer ends early.
        """
        import httpx2

        with ExitStack() as stack:
            answer = self._begun(
                stack, address_of(job), query_of(path, attempt, node, rank)
            )
            try:
                return write_outputs(answer.iter_raw(), path, Path(to))
            except httpx2.TransportError as error:
                raise cut_short(job, path, error) from None

    def _begun(
        self, stack: ExitStack, path: str, query: Mapping[str, Any]
    ) -> "httpx2.Response":
        """Return the response of the first head that answers. Its body is not read yet,
        and `stack` closes it."""
        import httpx2

        for nap in naps(self._where.heads):
            target = self._where.target()
            try:
                answer = stack.enter_context(
                    self._client(target).stream(
                        "GET", target.url + path, params=query, headers=headers(target)
                    )
                )
            except (httpx2.TransportError, WrongHead) as error:
                self._where.pass_over()
                if nap is None or was_refused(error):
                    raise no_answer(target, error) from None
                continue
            if answer.status_code >= 400:
                raise self._where.refusal(answer.status_code, answer.read())
            return answer
        raise AssertionError("the last try answers or raises")
