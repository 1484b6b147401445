"""How many simulated worlds it takes until a rule that is taken out of the code is missed.

Usage: python -m benchmarks.mutants, from the root of the checkout. Prints a table in Markdown.
"""

import time

import pytest

from tests.simulate.mutants import MOST_WORLDS, MUTANTS, breed, first_missed


def main() -> None:
    """Begin at world 0 with each, and not at the world that the tests know."""
    print("| rule taken out | where | missed by | worlds until then | CPU s |")
    print("| --- | --- | --- | --- | --- |")
    for mutant in MUTANTS:
        began = time.process_time()
        with pytest.MonkeyPatch.context() as patches:
            breed(mutant, patches)
            caught = first_missed(mutant, 0)
        seconds = time.process_time() - began
        rule = caught.rule if caught is not None else "nothing"
        worlds = caught.seed + 1 if caught is not None else MOST_WORLDS
        where = mutant.where.replace(":", ".")
        print(
            f"| {mutant.name} | `{where}` | {rule} | {worlds} | {seconds:.1f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
