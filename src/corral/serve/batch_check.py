"""Check of a batch's file in a process of its own, so that a large one delays nothing else:
`python -m corral.serve.batch_check FILE`. It prints what it has found as JSON."""

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Final

from corral.serve.batch_file import BatchFileInvalid, BatchRules, read_batch

MOST_FAULTS: Final = 100  # that are printed


def main(arguments: list[str] | None = None) -> int:
    """Check the file of the command line. Return the exit code. Raises: OSError."""
    parser = argparse.ArgumentParser(prog="python -m corral.serve.batch_check")
    parser.add_argument("file", type=Path, help="requests, one a line")
    parser.add_argument("--endpoint", help="the only url")
    parser.add_argument(
        "--model", action="append", help="names of the service; else all have one model"
    )
    options = parser.parse_args(arguments)
    rules = BatchRules(
        models=options.model,
        endpoint=options.endpoint,
        is_of_one_model=options.model is None,
    )
    try:
        lines = read_batch(options.file, rules)
    except BatchFileInvalid as error:
        faults = [asdict(fault) for fault in error.faults[:MOST_FAULTS]]
        print(json.dumps({"faults": faults}))
        return 0
    first = lines[0]
    answer = {"lines": len(lines), "model": first.model, "first_line": first.number}
    print(json.dumps(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main())
