"""`python -m corral.agent NODE_DIR` is one node's agent; with --kill it ends all of the node."""

import sys
from pathlib import Path
from typing import Final

from corral.domain.errors import CorralError

USAGE: Final = "usage: python -m corral.agent [--kill] NODE_DIR"
EXIT_USAGE: Final = 2
EXIT_REFUSED: Final = 3


def main(words: list[str]) -> int:
    kill = "--kill" in words
    folders = [word for word in words if word != "--kill"]
    if len(folders) != 1 or folders[0].startswith("-"):
        print(USAGE, file=sys.stderr)
        return EXIT_USAGE
    node_dir = Path(folders[0]).absolute()
    try:
        if kill:
            from corral.agent.supervisor import kill_node

            kill_node(node_dir)
        else:
            from corral.agent.daemon import serve

            serve(node_dir)
    except CorralError as refusal:
        print(f"{refusal.message}\n{refusal.hint}", file=sys.stderr)
        return EXIT_REFUSED
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
