"""A batch script in place of a spec file (corral apply -f train.sbatch), or in place of
a command (corral run train.sbatch)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from corral.cli.printing import note
from corral.cli.slurm.sbatch import here, read_script
from corral.domain.errors import SpecInvalid
from corral.wire.slurm.options import is_batch_script
from corral.wire.slurm.sbatch import read_batch
from corral.wire.slurm.slurm_errors import SlurmRefusal


def names_script(path: Path) -> bool:
    """Return whether the file is a batch script; False if it cannot be read."""
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            return file.read(2) == b"#!" and is_batch_script(
                read_script([str(path)])[0]
            )
    except (OSError, ValueError, SlurmRefusal):
        return False  # whoever reads it next says why


def spec_of_script(path: Path, arguments: Sequence[str] = ()) -> dict[str, Any] | None:
    """Return the spec that sbatch would submit with these arguments; None if the file
    is not a batch script.

    Raises: SpecInvalid for an option that is invalid or that is not supported.
    """
    if not names_script(path):
        return None
    try:
        text, name = read_script([str(path)])
        batch = read_batch([str(path), *arguments], text, here(), name=name)
    except SlurmRefusal as wrong:
        hint = wrong.hint or "see docs/reference/slurm-options.md"
        raise SpecInvalid(f"{path}: {wrong}", hint=hint) from None
    if batch.singleton:
        raise SpecInvalid(
            f"{path}: --dependency=singleton is supported only by sbatch",
            hint=f"run: sbatch {path}",
        )
    for batch_note in batch.notes:
        note(batch_note)
    return batch.spec
