"""Rules for which ranks can be forked from a warm interpreter, and with which
environment."""

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

# words that a shell passes on unchanged, quoted or not
_PLAIN: Final = re.compile(r"""(?:[\w@%+=:,./\t -]|'[^'\n]*'|"[\w@%+=:,./ -]*")+""")
_PYTHON: Final = re.compile(r"(?:.*/)?python(?:3(?:\.\d+)?)?")
_FLAGS: Final = frozenset({"-u", "-B", "-O", "-OO"})
# variables that differ between ranks or attempts, and are not read by an import
_VOLATILE_PREFIXES: Final = ("CORRAL_", "SLURM_", "MASTER_")
_VOLATILE: Final = frozenset(
    {
        "RANK",
        "LOCAL_RANK",
        "GROUP_RANK",
        "NODE_RANK",
        "ROLE_RANK",
        "WORLD_SIZE",
        "LOCAL_WORLD_SIZE",
        "CUDA_VISIBLE_DEVICES",
        "HIP_VISIBLE_DEVICES",
        "ROCR_VISIBLE_DEVICES",
        "JAX_COORDINATOR_ADDRESS",
        "MLFLOW_RUN_CONTEXT",
        "TF_CONFIG",
        "WANDB_RUN_ID",
        "WANDB_RESUME",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonCommand:
    """A command of the form `python file.py args` or `python -m module args`. `file` is
    None for a module."""

    words: Sequence[str]
    file: str | None

    def program_folder(self, work: str) -> str:
        """Return the folder that comes first on the program's module path."""
        if self.file is None:
            return work
        return os.path.dirname(os.path.realpath(os.path.join(work, self.file)))


def python_command(run: str) -> PythonCommand | None:
    """Return the command if a warm interpreter can stand in for it; None if a shell has
    to read it, or it is of another form."""
    run = run.strip()
    if not _PLAIN.fullmatch(run):
        return None
    words = shlex.split(run)
    if words[:1] == ["exec"]:
        del words[0]
    if not words or not _PYTHON.fullmatch(words[0]):
        return None
    index = 1
    while index < len(words) and words[index] in _FLAGS:
        index += 1
    rest = words[index:]
    if rest[:1] == ["-m"] and len(rest) > 1:
        return PythonCommand(words=tuple(words), file=None)
    if not rest or rest[0].startswith("-"):
        return None
    return PythonCommand(words=tuple(words), file=rest[0])


def different_variable(prepared: Mapping[str, str], env: Mapping[str, str]) -> str:
    """Return a variable whose value a warm interpreter may have read, and which is
    different in the rank's environment; "" without one."""
    for name in sorted(prepared.keys() | env.keys()):
        if name in _VOLATILE or name.startswith(_VOLATILE_PREFIXES):
            continue
        if prepared.get(name) != env.get(name):
            return name
    return ""
