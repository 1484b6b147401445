"""Start of a command on another node of the job, for mpirun, which would use ssh.

Usage: `python -m corral.agent.batch.remote_start HOST COMMAND...`. The arguments are
those of ssh. The command becomes a task of the job on that node, in the containment of
the attempt. Outside of a batch script it is refused.
"""

import os
import sys
from collections.abc import Sequence
from typing import Final

from corral.agent.batch.environment import BIN, STEPS

REFUSED: Final = 1
_REFUSAL: Final = (
    "mpirun starts ranks on other nodes only from a batch script, which runs once for the "
    "whole job; this command runs once on each node. Write the mpirun line into a file "
    "that begins with\n"
    "  #!/bin/bash\n"
    "  #SBATCH --nodes={nodes} --ntasks-per-node=RANKS\n"
    "and run: corral run FILE"
)


def srun_words(bin_folder: str, arguments: Sequence[str]) -> list[str]:
    """Return the srun command that runs the command of ssh's arguments. Options before
    the host are dropped.

    Raises: ValueError if there is no host or no command.
    """
    words = list(arguments)
    while words and words[0].startswith("-"):
        words.pop(0)
    if len(words) < 2:
        raise ValueError("no host or no command is given")
    host, command = words[0], " ".join(words[1:])
    options = ["--nodes=1", "--ntasks=1", f"--nodelist={host}", "--input=none"]
    return [f"{bin_folder}/srun", *options, "/bin/sh", "-c", command]


def main() -> int:
    """Replace this process by srun, or print why that is impossible."""
    bin_folder = os.environ.get(BIN, "")
    if not bin_folder or STEPS not in os.environ:
        nodes = len(os.environ.get("CORRAL_NODES", "").split(","))
        print(_REFUSAL.format(nodes=nodes), file=sys.stderr)
        return REFUSED
    try:
        words = srun_words(bin_folder, sys.argv[1:])
    except ValueError as error:
        print(f"the command cannot be started: {error}", file=sys.stderr)
        return REFUSED
    os.execv(words[0], words)


if __name__ == "__main__":
    sys.exit(main())
