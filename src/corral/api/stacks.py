"""Route of stacks: where the processes of a running job are."""

import asyncio
from typing import Annotated

from fastapi import APIRouter, Query

from corral.api.app_state import House
from corral.api.job_lookup import find_job
from corral.api.jobs import Asker, Within
from corral.api.output_desk import OutputAbsent, TransferCutShort
from corral.domain.errors import Conflict, NotFound
from corral.domain.ids import NodeId
from corral.domain.job import Job
from corral.domain.observed_state import AttemptKey
from corral.domain.rank_layout import ranks_on
from corral.wire.stack_answers import NodeTroubleView, ProcessStacksView, Stacks

router = APIRouter()
RUNNING = ("STARTING", "RUNNING", "STOPPING")


@router.get("/v1/jobs/{job}/stacks")
async def stacks(
    job: str,
    house: Within,
    caller: Asker,
    rank: Annotated[int | None, Query(ge=0, le=10**6)] = None,
) -> Stacks:
    """Return the stacks of the job's Python processes at this moment; with `rank`, only
    of the node that runs this rank."""
    found_job = await find_job(house.control, job, caller)
    caller.check_job(found_job, f"the stacks of {found_job.spec.name}")
    nodes = _nodes_of(house, found_job, rank)
    await house.reads.note(caller, found_job)
    key = (found_job.id, found_job.attempt)
    answers = await asyncio.gather(*(_of_node(house, key, node) for node in nodes))
    return Stacks(
        job=found_job.id,
        name=found_job.spec.name,
        attempt=found_job.attempt,
        processes=[process for processes, _ in answers for process in processes],
        missing=[trouble for _, trouble in answers if trouble is not None],
    )


def _nodes_of(house: House, job: Job, rank: int | None) -> list[NodeId]:
    """Return the nodes of the job's attempt, or the one of the rank. Raises: Conflict,
    NotFound."""
    attempt = house.control.world.attempts.get(job.id)
    if attempt is None or job.state not in RUNNING:
        raise Conflict(
            f"{job.spec.name} is {job.state}: it has no processes",
            hint=f"run: corral why {job.spec.name}",
        )
    if rank is None:
        return list(attempt.nodes)
    for node in attempt.nodes:
        if rank in ranks_on(job.spec, attempt, node):
            return [node]
    raise NotFound("rank", str(rank), see=f"corral show {job.spec.name}")


async def _of_node(
    house: House, key: AttemptKey, node: NodeId
) -> tuple[list[ProcessStacksView], NodeTroubleView | None]:
    try:
        processes = await house.outputs.stacks(node, key)
    except (Conflict, OutputAbsent, TransferCutShort) as trouble:
        return [], NodeTroubleView(node=node, trouble=trouble.message)
    except TimeoutError:
        return [], NodeTroubleView(node=node, trouble=f"node {node} does not answer")
    return [ProcessStacksView.of(node, process) for process in processes], None
