"""Recognition of a file that `corral slurm-shims` has made, against Slurm's own
command."""

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
    """Whether it speaks to Corral, and not to Slurm."""
    try:
        with file.open("rb") as opened:
            return MARK.encode() in opened.read(_BEGINNING_BYTES)
    except OSError:
        return False
