"""Entry point on each node of the gang, in the job's own Python: it runs one node of
the Ray cluster."""

import os
import sys
from pathlib import Path

from corral.agent.ray_program.count import count_nodes
from corral.agent.ray_program.first_node import run_program
from corral.agent.ray_program.member import RayProgramMember, decode_member
from corral.agent.ray_program.other_node import help_program
from corral.agent.ray_program.refusals import CannotRun, refuse


def main(words: list[str]) -> int:
    """Run this node's part of the Ray program, and return the exit code of the node's
    rank."""
    if words:
        return count_nodes(int(words[0]))
    folder = Path("/proc", os.readlink("/proc/self"), "cwd")
    own_environment = dict(os.environ)
    try:
        member: RayProgramMember = decode_member(
            Path("member.json").read_text(), folder=folder, own=own_environment
        )
        return run_program(member) if member.place == 0 else help_program(member)
    except CannotRun as why:
        return refuse(str(why), own_environment, infra=why.infra)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
