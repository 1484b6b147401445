"""The command that starts a new job from a save of a finished job."""

import shlex
from collections.abc import Sequence
from typing import Final

from corral.domain.attempt import Attempt, Save, loss_text
from corral.domain.errors import Conflict
from corral.domain.job import Job, JobSpec, Origin, Per
from corral.domain.kept_checkpoints import kept_saves
from corral.ports.store import Store

LONGEST: Final = 120  # characters of a command that is repeated


def origin_text(origin: Origin | None) -> str:
    """Return the origin as text, for example: j35@400. "" without an origin."""
    return "" if origin is None else f"{origin.job}@{origin.step}"


def restart_text(job: Job, saves: Sequence[Save], *, whole: bool) -> str:
    """Return the text that suggests to start a new job from the newest save of this
    job. For example: start a new job from its save of step 21: corral run --from j35 --
    CMD.

    The text is "" for a job that is not over, or has no save. `whole` says whether the
    job's command may be shown.
    """
    kept_checkpoints = (
        kept_saves(saves, job.spec.checkpoint.keep_rule)
        if job.spec.checkpoint is not None
        else ()
    )
    if not (job.is_final and kept_checkpoints):
        return ""
    return (
        f"start a new job from its save of step {kept_checkpoints[0].step}: "
        f"{_format_run_command(job, whole=whole)}"
    )


async def resume_refusal(store: Store, job: Job, *, whole: bool) -> Conflict:
    """Return the error that refuses to resume a job that is over. Its hint says what
    the user can do instead. `whole`: as in `restart_text`."""
    restart = restart_text(job, await store.saves(job.id), whole=whole)
    return Conflict(
        f"job {job.id} cannot be resumed: it has ended ({job.state})",
        hint=restart or f"run: corral show {job.id}",
    )


def loss_advice(job: Job, attempt: Attempt) -> list[str]:
    """Return advice if the attempt reported a loss that is NaN; otherwise an empty
    list."""
    if attempt.nan_step is None:
        return []
    loss_sentence = loss_text(attempt.nan_step)
    if job.is_final:
        return [
            f"{loss_sentence}; for the saves before that step, run: corral checkpoints {job.id}"
        ]
    return [
        f"{loss_sentence}; all that the job computes now is lost, to stop it, run: "
        f"corral stop {job.id}"
    ]


def _format_run_command(job: Job, *, whole: bool) -> str:
    spec = job.spec
    is_short = "\n" not in spec.run and len(spec.run) <= LONGEST
    command = shlex.quote(spec.run) if whole and is_short else "CMD"
    return " ".join(
        ["corral run --from", str(job.id), *_format_run_options(spec), "--", command]
    )


def _format_run_options(spec: JobSpec) -> list[str]:
    """Return the requested resources of a job as options of `corral run`, as far as
    short options exist."""
    options = [f"--nodes {spec.nodes}"] if spec.nodes > 1 else []
    if spec.resources.gpu_millis and spec.resources.gpu_millis % 1000 == 0:
        kind = f"{spec.resources.gpu_type}:" if spec.resources.gpu_type else ""
        options.append(f"--gpus {kind}{spec.resources.gpus}")
    if spec.per == Per.GPU:
        options.append("--per gpu")
    return options
