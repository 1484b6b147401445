"""Check the record of a chaos run again: python -m tests.chaos.check FILE..."""

import sys
from pathlib import Path

import msgspec

from tests.chaos.checker import violations
from tests.chaos.history import History


def main() -> int:
    count = 0
    for name in sys.argv[1:]:
        history = msgspec.json.decode(Path(name).read_bytes(), type=History)
        wrong = violations(history)
        count += len(wrong)
        print(f"{name}: {len(wrong)} violations")
        for one in wrong:
            print(f"  {one}")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
