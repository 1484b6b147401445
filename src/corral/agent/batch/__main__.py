"""Run one node's part of a batch job, from the folder that holds the script.

Usage: `python -m corral.agent.batch PLAN`.
"""

import os
import sys
from pathlib import Path

from corral.agent.batch import environment
from corral.agent.batch.first_node import run_script, write_commands
from corral.agent.batch.other_node import help_first
from corral.wire.slurm.batch_plan import decode_plan


def main() -> int:
    """Run this node's part of the batch job, and return the exit code of the node's
    rank."""
    environment_now = dict(os.environ)
    if environment_now["SLURM_NODEID"] == "0":
        return run_script(decode_plan(sys.argv[1]), environment_now)
    folder = write_commands(Path.cwd(), environment_now["CORRAL_PYTHON"])
    return help_first({**environment_now, environment.BIN: str(folder)})


if __name__ == "__main__":
    sys.exit(main())
