"""`python -m corral.agent NODE_DIR` runs the agent of one node. With --kill it kills
everything that runs on the node. With --part it runs the agent of a single attempt from
the folder that the head has prepared for that attempt.

Each mode imports only what it needs: the agent of an attempt begins before most of its
program is loaded (part_start).
"""

import sys
from pathlib import Path
from typing import Final

from corral.domain.errors import CorralError

USAGE: Final = "usage: python -m corral.agent [--kill | --part] NODE_DIR"
EXIT_USAGE: Final = 2
EXIT_REFUSED: Final = 3


def main(words: list[str]) -> int:
    options = [argument for argument in words if argument in ("--kill", "--part")]
    folders = [argument for argument in words if argument not in options]
    if len(folders) != 1 or len(options) > 1 or folders[0].startswith("-"):
        print(USAGE, file=sys.stderr)
        return EXIT_USAGE
    node_dir = Path(folders[0]).absolute()
    try:
        if options == ["--kill"]:
            from corral.agent.supervisor.supervisor import kill_node

            kill_node(node_dir)
        elif options == ["--part"]:
            from corral.agent.pilot.start import serve_part

            serve_part(node_dir)
        else:
            from corral.agent.daemon import serve

            serve(node_dir)
    except CorralError as refusal:
        print(f"{refusal.message}\n{refusal.hint}", file=sys.stderr)
        return EXIT_REFUSED
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
