"""The commands `corral checkpoints`: list, show, compare, export, pin, unpin and remove
the saves of a job."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from cyclopts import Parameter

from corral.cli import arrays
from corral.cli.checkpoint_files import delete_files, process_files
from corral.cli.head_options import Change, Common, Ordinal, declined
from corral.cli.printing import (
    clean,
    note,
    print_json,
    say,
    show_pairs,
    show_table,
    table,
)
from corral.domain.errors import NotFound
from corral.domain.time_point import moment_text
from corral.domain.units import duration_text, size_text

if TYPE_CHECKING:
    from corral.client import Client
    from corral.wire import api

MOST_METRICS: Final = 2  # in the table; `show` prints all
ExportFormat = Literal["safetensors", "torch", "hf"]


def ls(job: str, /, *, common: Common = Common()) -> None:  # noqa: B008 - frozen
    """List the checkpoints of a job.

    Args:
        job: Id of a job, or the name of the newest job of this name; for an array, the
            checkpoints of all its jobs.
    """
    warnings: list[str] = []
    memory_step: int | None = None
    with common.client() as client:
        found_job = arrays.found(client, job, client.job)
        if isinstance(found_job, list):
            saves = arrays.checkpoints_of(common, found_job)
        else:
            listed = client.checkpoint_list(found_job.id)
            saves = [("", save) for save in listed.checkpoints]
            warnings = listed.warnings
            progress = found_job.progress
            memory_step = None if progress is None else progress.memory_step
    if common.json:
        rows = [
            save.model_dump(mode="json") | ({"job": of} if of else {})
            for of, save in saves
        ]
        document = {"checkpoints": rows, "warnings": warnings}
        print_json({**document, "memory_step": memory_step})
        return
    show_checkpoints(saves)
    if memory_step is not None:
        note(f"the newest save in the memory of the nodes is of step {memory_step}")
    if not saves:
        note("no checkpoint has been recorded")
    for warning in warnings:
        note(warning)


def show(
    job: str,
    step: int,
    /,
    *,
    attempt: Ordinal | None = None,
    verify: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    common: Common = Common(),  # noqa: B008 - frozen
) -> None:
    """Show one checkpoint of a job.

    Args:
        job: Id or name of a job.
        step: Step of the checkpoint.
        attempt: Attempt that made it (default: the newest that saved this step).
        verify: Read all its files on this machine, and compare their SHA-256.
    """
    with common.client() as client:
        save = _checkpoint_at(client, job, step, attempt)
    verified = process_files([save], "verify") if verify else None
    if common.json:
        print_json(save)
        return
    metrics = ", ".join(f"{name} {value:.6g}" for name, value in save.metrics.items())
    show_pairs(
        [
            ("step", f"{save.step} of attempt {save.attempt}"),
            ("saved", moment_text(save.at)),
            ("size", size_text(save.size_bytes)),
            ("took", duration_text(save.seconds)),
            ("stall", f"{save.stall_seconds:.3f} s"),
            ("metrics", clean(metrics) or "none was logged"),
            ("kept", _kept_text(save)),
            ("verified", _verified_text(save) or "no attempt has resumed from it"),
            ("path", clean(save.path)),
            ("manifest", save.manifest_sha256),
        ]
    )
    if verified is not None:
        note(
            f"verified now: {verified['files']} files, {size_text(verified['size_bytes'])}"
        )


def compare(
    job: str,
    first: int,
    second: int,
    /,
    *,
    common: Common = Common(),  # noqa: B008 - frozen
) -> None:
    """Compare two checkpoints of a job: settings, metrics and the model's layers.

    Args:
        job: Id or name of a job.
        first: Step of a checkpoint.
        second: Step of another checkpoint.
    """
    with common.client() as client:
        saves = [_checkpoint_at(client, job, step) for step in (first, second)]
    differences = process_files(saves, "compare")
    if common.json:
        print_json(dict(differences))
        return
    rows = table("", f"STEP {first}", f"STEP {second}")
    for kind in ("settings", "metrics"):
        for name, values in differences[kind].items():
            rows.add_row(clean(str(name)), *map(_value_text, values))
    if rows.row_count:
        show_table(rows)
        say()
    _show_layers(differences["layers"])


def export(
    job: str,
    step: int,
    directory: Path,
    /,
    *,
    to: ExportFormat = "safetensors",
    attempt: Ordinal | None = None,
    common: Common = Common(),  # noqa: B008 - frozen
) -> None:
    """Write the model of a checkpoint into a folder of this machine.

    Args:
        job: Id or name of a job.
        step: Step of the checkpoint.
        directory: Folder of the exported model; it is created if needed.
        to: Format of the file: safetensors, torch, or hf (safetensors with the
            config.json that lies beside the checkpoints).
        attempt: Attempt that made it (default: the newest that saved this step).
    """
    with common.client() as client:
        save = _checkpoint_at(client, job, step, attempt)
    target = str(directory.expanduser().absolute())
    done = process_files([save], "export", target=target, to=to)
    if common.json:
        print_json(dict(done))
        return
    for path in done["files"]:
        say(clean(path))


def pin(
    job: str,
    step: int,
    /,
    *,
    attempt: Ordinal | None = None,
    common: Change = Change(),  # noqa: B008 - frozen
) -> None:
    """Pin a checkpoint: it stays on disk, whatever the job saves later.

    Args:
        job: Id or name of a job.
        step: Step of the checkpoint.
        attempt: Attempt that made it (default: the newest that saved this step).
    """
    _change(job, step, "pin", attempt, common)


def unpin(
    job: str,
    step: int,
    /,
    *,
    attempt: Ordinal | None = None,
    common: Change = Change(),  # noqa: B008 - frozen
) -> None:
    """Unpin a checkpoint: it stays only as long as the job's rule keeps it.

    Args:
        job: Id or name of a job.
        step: Step of the checkpoint.
        attempt: Attempt that made it (default: the newest that saved this step).
    """
    _change(job, step, "unpin", attempt, common)


def rm(
    job: str,
    step: int,
    /,
    *,
    attempt: Ordinal | None = None,
    common: Change = Change(),  # noqa: B008 - frozen
) -> None:
    """Remove a checkpoint and its files.

    The only checkpoint of an unfinished job is removed with --yes alone.

    Args:
        job: Id or name of a job.
        step: Step of the checkpoint.
        attempt: Attempt that made it (default: the newest that saved this step).
    """
    if not common.agreed(f"remove step {step} of {job}?", destroys=True):
        raise declined()
    with common.client() as client:
        save = client.change_checkpoint(
            job, step, "rm", attempt=attempt, force=common.yes
        )
    are_gone = delete_files(save)
    if common.json:
        print_json(save)
        return
    say(f"the checkpoint of step {save.step} is removed")
    if not are_gone:
        note(
            f"its files are not deleted, because this machine does not see them: {save.path}"
        )


def show_checkpoints(saves: "list[tuple[str, api.CheckpointView]]") -> None:
    """Print the checkpoints that are still on disk; for several jobs, each with its
    job."""
    pruned = sum(save.pruned or bool(save.retired) for _, save in saves)
    saves = [(of, save) for of, save in saves if not (save.pruned or save.retired)]
    several = ["JOB"] if any(of for of, _ in saves) else []
    numbers = ("STEP", "ATTEMPT", "SIZE")
    columns = (*numbers, "METRICS", "VERIFIED", "KEPT", "PATH")
    rows = table(*several, *columns, right=numbers)
    for of, save in saves:
        rows.add_row(
            *([of] if several else []),
            str(save.step),
            str(save.attempt),
            size_text(save.size_bytes),
            clean(_metrics_text(save)),
            _verified_text(save),
            _kept_text(save),
            clean(f"QUARANTINED {save.quarantined}" if save.quarantined else save.path),
        )
    show_table(rows)
    if pruned:
        pruned_text = (
            "1 older checkpoint was"
            if pruned == 1
            else f"{pruned} older checkpoints were"
        )
        note(f"{pruned_text} removed, or replaced by newer checkpoints")


def _checkpoint_at(
    client: "Client", job: str, step: int, attempt: int | None = None
) -> "api.CheckpointView":
    """Return the newest checkpoint on disk with this step. Raises: NotFound."""
    on_disk = [
        save
        for save in client.checkpoint_list(job).checkpoints
        if not (save.pruned or save.retired or save.quarantined)
    ]
    matching = [
        save
        for save in on_disk
        if save.step == step and attempt in (None, save.attempt)
    ]
    if not matching:
        steps = [str(save.step) for save in on_disk]
        see = f"corral checkpoints {job}"
        raise NotFound("checkpoint of step", str(step), steps, see=see)
    return max(matching, key=lambda save: save.attempt)


def _change(
    job: str,
    step: int,
    to: Literal["pin", "unpin"],
    attempt: int | None,
    common: Change,
) -> None:
    with common.client() as client:
        save = client.change_checkpoint(job, step, to, attempt=attempt)
    if common.json:
        print_json(save)
    else:
        say(f"the checkpoint of step {save.step} is {to}ned")


def _show_layers(layers: "list[dict[str, Any]]") -> None:
    numbers = ("PARAMETERS", "DIFFERENCE", "RELATIVE")
    rows = table("LAYER", *numbers, "OTHER SHAPES", right=numbers)
    for layer in layers:
        relative = layer["relative"]
        rows.add_row(
            clean(layer["layer"] or "(top)"),
            f"{layer['parameters']:,}",
            f"{layer['difference']:.6g}",
            "" if relative is None else f"{relative:.3g}",
            clean("; ".join(layer["shapes"])),
        )
    show_table(rows)


def _metrics_text(save: "api.CheckpointView") -> str:
    shown = list(save.metrics.items())[:MOST_METRICS]
    more = "" if len(save.metrics) == len(shown) else " ..."
    return ", ".join(f"{name} {value:.4g}" for name, value in shown) + more


def _kept_text(save: "api.CheckpointView") -> str:
    return "no" if save.quarantined else ", ".join(save.kept)


def _verified_text(save: "api.CheckpointView") -> str:
    return "" if save.verified_at is None else moment_text(save.verified_at)


def _value_text(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else clean(str(value))
