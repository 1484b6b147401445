"""Routes that change saves: pin, unpin and remove one, and go back to an older one."""

from collections.abc import Sequence
from typing import Final

from fastapi import APIRouter

from corral.api.app_state import House
from corral.api.checkpoint_selection import save_of_step
from corral.api.errors import RequestInvalid
from corral.api.job_lookup import find_job
from corral.api.jobs import Asker, Within
from corral.control.request_checks import check_asked
from corral.domain.attempt import Save
from corral.domain.errors import Conflict
from corral.domain.job import Job
from corral.domain.keep_rule import save_key
from corral.domain.kept_checkpoints import kept_saves, rule_of
from corral.domain.requests import ChangeSave
from corral.wire import api

router = APIRouter()
STEP_DIGITS: Final = 18


@router.post("/v1/jobs/{job}/checkpoints/{step}", status_code=202)
async def change_checkpoint(
    job: str,
    step: str,
    house: Within,
    caller: Asker,
    body: api.CheckpointChange | None = None,
) -> api.CheckpointView:
    """Pin or unpin the save of this step, or remove it. A pinned save is never pruned. A
    removed one is not used any more; its files are deleted by the caller."""
    found_job = await find_job(house.control, job, caller)
    caller.check_job(found_job)
    if body is None:  # whose it is goes before what is asked
        raise RequestInvalid(
            "the request names no change", hint='write a body such as {"to": "pin"}'
        )
    if not (step.isascii() and step.isdecimal() and len(step) <= STEP_DIGITS):
        raise RequestInvalid(
            f"{step[:20]!r} is not a step",
            hint=f"run: corral checkpoints {found_job.id}",
        )
    saves = await house.control.store.saves(found_job.id)
    saves_on_disk = kept_saves(saves, rule_of(found_job.spec.checkpoint))
    save = save_of_step(found_job, saves, int(step), body.attempt)
    if body.to == "rm" and not body.force:
        _check_removal(found_job, saves_on_disk, save)
    change = ChangeSave(save=save, to=body.to)
    check_asked(house.control.world, change, house.control.now())
    await house.control.ask(change, by=caller.name, speaker=caller.speaker)
    return await _changed_view(house, found_job, save)


async def _changed_view(house: House, job: Job, save: Save) -> api.CheckpointView:
    saves = await house.control.store.saves(job.id)
    views = api.CheckpointView.all_of(saves, job.spec.checkpoint)
    return next(view for view in views if (view.attempt, view.step) == save_key(save))


def _check_removal(job: Job, saves_on_disk: Sequence[Save], save: Save) -> None:
    """Refuse to remove the only save of an unfinished job. Raises: Conflict."""
    if job.is_final or any(other != save for other in saves_on_disk):
        return
    raise Conflict(
        f"the save of step {save.step} is the only one of {job.spec.name} ({job.id}), which "
        f"is {job.state}: without it, its next attempt starts at step 0",
        hint=f"to remove it all the same, run: corral checkpoints rm {job.id} {save.step} --yes",
    )
