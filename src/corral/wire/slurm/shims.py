"""Detection of files that `corral slurm-shims` has installed, as opposed to Slurm's own
commands."""

from pathlib import Path
from typing import Final

COMMANDS: Final = (
    "sbatch",
    "srun",
    "squeue",
    "scancel",
    "sinfo",
    "sacct",
    "scontrol",
    "sacctmgr",
    "sshare",
    "salloc",
)
MARK: Final = "# a command of Slurm's, spoken to Corral: corral slurm-shims"
_BEGINNING_BYTES: Final = 200


def is_shim(file: Path) -> bool:
    """Return whether the file is a shim that calls Corral, and not Slurm's own command."""
    try:
        with file.open("rb") as opened:
            return MARK.encode() in opened.read(_BEGINNING_BYTES)
    except OSError:
        return False
