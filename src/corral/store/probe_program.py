"""Program that tries to write an object: `python -m corral.store.probe_program`. The head
runs it with no other variables than those of the store, because obstore also reads the
environment of its process.

It reads one JSON document {"url", "env"} from its standard input, and writes one to its
standard output: {} or {"refused": {"message", "hint", "no_bucket"}}.
"""

import json
import sys
from collections.abc import Mapping
from typing import Any, Final

from corral.domain.errors import Unsupported
from corral.domain.store_url import parse_store_url
from corral.store.object_client import ObjectClient, StoreRefused, StoreUnavailable

RETRY_SECONDS: Final = 1.0
REQUEST_SECONDS: Final = 3.0
PROBE: Final = ".corral-write-check"


def run(request: Mapping[str, Any]) -> dict[str, Any]:
    """Write and remove a small object below the address of the request. A store that
    does not answer is not refused."""
    url = parse_store_url(request["url"])
    key = f"{url.key}/{PROBE}".lstrip("/")
    try:
        client = ObjectClient(
            url=url,
            env=request["env"],
            retry_seconds=RETRY_SECONDS,
            request_seconds=REQUEST_SECONDS,
        )
        client.put(key, b"corral checks that jobs can save here\n")
        client.delete([key])
    except StoreRefused as error:
        fields = {"message": error.message, "hint": error.hint}
        return {"refused": {**fields, "no_bucket": error.no_bucket}}
    except (StoreUnavailable, Unsupported):
        pass
    return {}


def main() -> None:
    json.dump(run(json.load(sys.stdin)), sys.stdout)


if __name__ == "__main__":
    main()
