"""Routes of outputs: the files that attempts wrote into their work folders."""

import asyncio
from contextlib import suppress
from typing import Annotated, Final

from fastapi import APIRouter, Query
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from corral.api.app_state import House
from corral.api.job_lookup import find_job
from corral.api.jobs import Asker, Within
from corral.api.output_desk import (
    LIST_SECONDS,
    OutputAbsent,
    Transfer,
    TransferCutShort,
)
from corral.domain.attempt import Attempt
from corral.domain.errors import Conflict, NotFound
from corral.domain.ids import NodeId
from corral.domain.job import Job
from corral.domain.rank_layout import ranks_on
from corral.wire.output_answers import NodeOutputs, Outputs

router = APIRouter()
LENT: Final = (
    "a lent node (of a batch system) keeps no work folder after the attempt; write "
    "results to a shared path"
)
MOST_NODES: Final = 64  # of a gang whose outputs one answer lists
Number = Annotated[int | None, Query(ge=1, le=10**6)]


@router.get("/v1/jobs/{job}/outputs")
async def outputs(
    job: str,
    house: Within,
    caller: Asker,
    attempt: Number = None,
    wait: Annotated[float, Query(gt=0, le=LIST_SECONDS)] = LIST_SECONDS,
) -> Outputs:
    """Return the files that an attempt (by default the newest) wrote into its work
    folders, by node. A node that does not respond within `wait` seconds has an error in
    place of files."""
    found_job = await find_job(house.control, job, caller)
    caller.check_job(found_job, f"the outputs of {found_job.spec.name}")
    tried = await _find_attempt(house, found_job, attempt)
    await house.reads.note(caller, found_job)
    nodes = tried.nodes[:MOST_NODES]
    ended_at = tried.ended_at
    return Outputs(
        job=found_job.id,
        name=found_job.spec.name,
        attempt=tried.number,
        kept_until=None if ended_at is None else house.settings.work.until(ended_at),
        nodes=await asyncio.gather(
            *(_of_node(house, found_job, tried, node, wait) for node in nodes)
        ),
    )


async def _of_node(
    house: House, job: Job, attempt: Attempt, node: NodeId, wait: float
) -> NodeOutputs:
    ranks = ranks_on(job.spec, attempt, node)
    if house.channels.lender is not None and attempt.ended_at is not None:
        return NodeOutputs(node=node, ranks=list(ranks), is_kept=False, trouble=LENT)
    try:
        listing = await house.outputs.listing(node, (job.id, attempt.number), wait)
    except OutputAbsent:
        return NodeOutputs(node=node, ranks=list(ranks), is_kept=False)
    except (Conflict, TransferCutShort) as trouble:
        return NodeOutputs(node=node, ranks=list(ranks), trouble=trouble.message)
    except TimeoutError:
        return NodeOutputs(
            node=node, ranks=list(ranks), trouble=f"node {node} does not answer"
        )
    return NodeOutputs.of(node, ranks, listing)


@router.get("/v1/jobs/{job}/files")
async def files(
    job: str,
    house: Within,
    caller: Asker,
    path: Annotated[str, Query(max_length=4096)] = "",
    attempt: Number = None,
    node: Annotated[str | None, Query(max_length=253)] = None,
    rank: Annotated[int | None, Query(ge=0, le=10**6)] = None,
) -> Response:
    """Return a file or folder of an attempt's work folder as a tar stream. It comes
    from the requested node, from the node of the requested rank, or else from the first
    node that has the file. The stream breaks off if the file cannot be sent completely.
    """
    found_job = await find_job(house.control, job, caller)
    caller.check_job(found_job, f"the outputs of {found_job.spec.name}")
    tried = await _find_attempt(house, found_job, attempt)
    nodes = _select_nodes(found_job, tried, node, rank)
    await house.reads.note(caller, found_job)
    begin, key = house.outputs.begin, (found_job.id, tried.number)
    for node_id in nodes[:-1]:
        with suppress(OutputAbsent, Conflict):
            return _TransferResponse(await begin(node_id, key, path, caller.name))
    return _TransferResponse(await begin(nodes[-1], key, path, caller.name))


class _TransferResponse(StreamingResponse):
    """A streaming response that closes its transfer even if the client disconnects
    before the first byte."""

    def __init__(self, transfer: Transfer) -> None:
        super().__init__(transfer.body(), media_type="application/x-tar")
        self._transfer = transfer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self._transfer.close()


async def _find_attempt(house: House, job: Job, number: int | None) -> Attempt:
    """Return the attempt of the job with this number; without a number, the newest
    attempt.

    Raises: NotFound; Conflict for a job that has not run yet.
    """
    newest_attempt = house.control.world.attempts.get(job.id)
    if newest_attempt is not None and number in (None, newest_attempt.number):
        return newest_attempt
    if job.attempt == 0:
        raise Conflict(
            f"{job.spec.name} is {job.state} and has not run yet",
            hint=f"run: corral why {job.id}",
        )
    past = await house.control.store.attempts(job.id)
    for attempt in reversed(past):
        if number in (None, attempt.number):
            return attempt
    raise NotFound("attempt", str(number), see=f"corral show {job.id}")


def _select_nodes(
    job: Job, attempt: Attempt, node: str | None, rank: int | None
) -> list[NodeId]:
    """Return the nodes of the attempt, restricted to the given node or to the node of
    the given rank.

    Raises: NotFound for a node or rank that the attempt does not have.
    """
    nodes = list(attempt.nodes)
    if node is not None:
        nodes = [node_id for node_id in nodes if node_id == node]
        if not nodes:
            raise NotFound(
                "node", node, list(attempt.nodes), see=f"corral show {job.id}"
            )
    if rank is not None:
        nodes = [
            node_id for node_id in nodes if rank in ranks_on(job.spec, attempt, node_id)
        ]
        if not nodes:
            raise NotFound("rank", str(rank), see=f"corral show {job.id}")
    return nodes
