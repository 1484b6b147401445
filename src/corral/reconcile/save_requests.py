"""Applies users' requests about saves to the draft: pin, unpin, remove, and go back to an
older save."""

from dataclasses import replace

from corral.domain.attempt import Retirement, Save
from corral.domain.event_kind import EventKind
from corral.domain.ids import JobId
from corral.domain.keep_rule import SaveKey, save_key
from corral.domain.requests import ChangeSave, StoredRequest
from corral.reconcile.changeset import Draft


def change_save(draft: Draft, request: StoredRequest, asked: ChangeSave) -> None:
    """Pin, unpin or remove a save. Nothing changes if the job has been deleted, or the
    save has been quarantined or removed meanwhile."""
    old_save = asked.save
    job = draft.job(old_save.job)
    if job is not None:
        old_saves = {save_key(save): save for save in draft.saves_of(job.id)}
        if save_key(old_save) not in old_saves and old_save.is_usable:
            return
        old_save = old_saves.get(save_key(old_save), old_save)
    elif draft.world.state_of(old_save.job) is None:
        return
    changed = changed_save(old_save, asked)
    if changed == old_save:
        return
    draft.saves.append(changed)
    text = f"save of step {changed.step}: {asked.to}, requested by {request.by}"
    draft.tell(EventKind.CHECKPOINT, text, job=changed.job, attempt=changed.attempt)


def changed_save(save: Save, asked: ChangeSave) -> Save:
    """Return the save with the change applied. A removed save is not pinned."""
    if asked.to == "rm":
        return replace(save, pinned=False, retired=Retirement.REMOVED)
    return replace(save, pinned=asked.to == "pin")


def go_back(draft: Draft, request: StoredRequest, id: JobId, key: SaveKey) -> None:
    """Retire the saves of the job that are newer than this save, so that its next
    attempt resumes from this save. Nothing changes if the save cannot be used any
    more."""
    saves = draft.saves_of(id)
    job = draft.job(id)
    is_off_nodes = job is not None and not job.state.is_on_nodes
    if job is None or not is_off_nodes or key not in map(save_key, saves):
        return
    attempt, step = key
    for save in saves:
        if (save.step, save.attempt) > (step, attempt):
            draft.saves.append(replace(save, retired=Retirement.PASSED_OVER))
    # progress is measured from where the job goes on
    draft.put(
        replace(
            job,
            best_step=min(job.best_step, step),
            passed_over_attempt=job.attempt,
        )
    )
    text = f"goes back to its save of step {step}, requested by {request.by}"
    draft.tell(EventKind.CHECKPOINT, text, job=id, attempt=job.attempt)
