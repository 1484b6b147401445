"""Count of the nodes in the attempt's Ray cluster. It runs in a separate process,
because Ray's client stays connected once started."""

import importlib
import logging
import time
from typing import Final

LOOK_SECONDS: Final = 0.1


def count_nodes(needed: int) -> int:
    """Wait until `needed` nodes of the Ray cluster are alive, and return exit code 0.

    The cluster's address is read from standard input as soon as it is known. Ray is
    imported before that, so that the import causes no delay later.
    """
    ray = importlib.import_module("ray")
    address = input()
    ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    while sum(bool(node["Alive"]) for node in ray.nodes()) < needed:
        time.sleep(LOOK_SECONDS)
    return 0
