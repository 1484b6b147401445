"""`corral slurm-shims`: small files with the names of Slurm's commands that call
Corral."""

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from corral.cli.printing import note, say
from corral.domain.errors import Conflict
from corral.wire.slurm.shims import COMMANDS, MARK, is_shim


def install(
    *,
    into: Annotated[Path, Parameter(name="--into")],
    force: Annotated[
        bool, Parameter(name="--force", negative="", show_default=False)
    ] = False,
) -> int:
    """Install sbatch, srun, squeue, scancel, sinfo, sacct and others, which use this
    cluster.

    Args:
        into: Directory that comes first in PATH.
        force: Overwrite files that are not shims.
    """
    into.mkdir(parents=True, exist_ok=True)
    files = [into / name for name in COMMANDS]
    for file in files:
        if file.exists() and not force and not is_shim(file):
            raise Conflict(
                f"{file} exists and is not a Corral command; nothing was installed",
                hint="add --force to overwrite it, or use another --into DIRECTORY",
            )
    for file in files:
        partial_file = file.with_name(f".{file.name}.part")
        shim_command = f'exec {sys.executable} -P -m corral.cli.slurm {file.name} "$@"'
        partial_file.write_text(f"#!/bin/sh\n{MARK}\n{shim_command}\n")
        partial_file.chmod(0o755)
        partial_file.rename(file)
    say(str(into))
    note(f'to use the commands, run: export PATH={into.absolute()}:"$PATH"')
    return 0
