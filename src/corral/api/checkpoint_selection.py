"""Selection of one save of a job by its step."""

from collections.abc import Sequence

from corral.domain.attempt import Save
from corral.domain.errors import NotFound
from corral.domain.job import Job
from corral.domain.kept_checkpoints import kept_saves, rule_of


def save_of_step(
    job: Job, saves: Sequence[Save], step: int, attempt: int | None = None
) -> Save:
    """Return the newest save on disk that has this step, and this attempt if one is
    given. `saves`: all recorded saves of the job.

    Raises: NotFound with the steps of the saves on disk.
    """
    saves_on_disk = kept_saves(saves, rule_of(job.spec.checkpoint))
    for save in saves_on_disk:
        if save.step == step and attempt in (None, save.attempt):
            return save
    steps = [str(save.step) for save in saves_on_disk]
    save_text = str(step) if attempt is None else f"{step} of attempt {attempt}"
    raise NotFound("save of step", save_text, steps, see=f"corral checkpoints {job.id}")


def unlogged_text(metric: str) -> str:
    """Return the warning that no save has a value of the metric by which the best saves
    are to stay."""
    return (
        f"the best saves are to stay by {metric!r}, but no save has a value of it: log it "
        f"before each save, for example: run.log({metric}=...)"
    )
