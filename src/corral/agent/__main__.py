"""`python -m corral.agent NODE_DIR` is one node's agent; with --kill it ends all of the
node, and with --part it is the agent of one attempt alone, from the folder that the
head has prepared for it.

Each way loads what it needs: a part begins before most of its program is read
(part_start).
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
