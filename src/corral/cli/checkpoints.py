"""The command checkpoints: lists the saves of a job."""

from typing import TYPE_CHECKING

from corral.cli import arrays
from corral.cli.head_options import Common
from corral.cli.printing import clean, note, print_json, show_table, table
from corral.domain.units import duration_text, size_text

if TYPE_CHECKING:
    from corral.wire import api


def checkpoints(job: str, /, *, common: Common = Common()) -> None:  # noqa: B008 - frozen
    """List the checkpoints of a job.

    Args:
        job: Id of a job, or the name of the newest job of this name; for an array, the
            checkpoints of all its jobs.
    """
    with common.client() as client:
        found_job = arrays.found(client, job, client.job)
    if isinstance(found_job, list):
        saves = arrays.checkpoints_of(common, found_job)
    else:
        saves = [("", save) for save in found_job.checkpoints]
    if common.json:
        rows = [
            save.model_dump(mode="json") | ({"job": of} if of else {})
            for of, save in saves
        ]
        print_json({"checkpoints": rows})
        return
    show_checkpoints(saves)
    if not saves:
        note("no checkpoint has been recorded")


def show_checkpoints(saves: "list[tuple[str, api.CheckpointView]]") -> None:
    """Print the checkpoints that are still on disk; for several jobs, each with its
    job."""
    pruned = sum(save.pruned for _, save in saves)
    saves = [(of, save) for of, save in saves if not save.pruned]
    several = ["JOB"] if any(of for of, _ in saves) else []
    numbers = ("STEP", "ATTEMPT", "SIZE", "TOOK", "STALL")
    rows = table(*several, *numbers, "PATH", right=numbers)
    for of, save in saves:
        rows.add_row(
            *([of] if several else []),
            str(save.step),
            str(save.attempt),
            size_text(save.size_bytes),
            duration_text(save.seconds),
            f"{save.stall_seconds:.3f} s",
            clean(f"QUARANTINED {save.quarantined}" if save.quarantined else save.path),
        )
    show_table(rows)
    if pruned:
        pruned_text = (
            "1 older checkpoint was"
            if pruned == 1
            else f"{pruned} older checkpoints were"
        )
        note(f"{pruned_text} removed after newer checkpoints were written")
