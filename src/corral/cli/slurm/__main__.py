"""`python -m corral.cli.slurm NAME ARGUMENTS`, which the shims run. A module is
imported only for its command, so that a shim starts fast."""

import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Final

from corral import __version__
from corral.domain.errors import CorralError
from corral.wire.slurm.slurm_errors import SlurmRefusal

COMMANDS: Final = {
    "sbatch": ("sbatch", "main"),
    "srun": ("srun", "main"),
    "squeue": ("squeue", "main"),
    "scancel": ("scancel", "main"),
    "sinfo": ("sinfo", "main"),
    "sacct": ("sacct", "main"),
    "scontrol": ("scontrol", "main"),
    "sacctmgr": ("sacctmgr", "main"),
    "sshare": ("sacctmgr", "shares"),
}
INTERRUPTED: Final = 130
SALLOC: Final = (
    "Corral has no allocations without a job, so salloc is not supported",
    "run a command with srun, or start a job and open a shell in it:",
    "  sbatch --wrap 'sleep 1h'; corral attach JOB",
)


def main(words: Sequence[str]) -> int:
    """Run one command, and return its exit code."""
    name = words[0] if words else ""
    try:
        if name == "salloc":
            raise SlurmRefusal(*SALLOC)
        if name not in COMMANDS:
            raise SlurmRefusal(
                f"the command {name!r} is not supported; use {', '.join(COMMANDS)}"
            )
        if words[1:2] in (["-V"], ["--version"]):
            print(f"slurm 22.05.8 (corral {__version__})")
            return 0
        module, function = COMMANDS[name]
        module_type = import_module(f"corral.cli.slurm.{module}")
        command: Callable[[Sequence[str]], int] = getattr(module_type, function)
        code = command(words[1:])
        sys.stdout.flush()
        return code
    except SlurmRefusal as wrong:
        line_prefix = "" if wrong.before is None else f"{name}: {wrong.before}"
        for line in wrong.lines:
            print(line_prefix + line, file=sys.stderr)
        if wrong.hint:
            print(wrong.hint, file=sys.stderr)
        return wrong.code
    except CorralError as error:
        print(f"{name}: error: {error.message}", file=sys.stderr)
        if error.hint:
            print(error.hint, file=sys.stderr)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return INTERRUPTED
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
