"""The command python -m corral.simulate: many worlds with --seeds 500, or one world in
full with --seed 17 --verbose."""

import argparse
import sys
import time

from corral.simulate.scenario import WorldOutcome, simulate
from corral.simulate.summary import WorldSums, breach_text
from corral.simulate.world import FIRST_WITH_SERVICES


def main() -> int:
    """Run the simulated worlds. Return 1 if an invariant was broken, else 0."""
    parser = argparse.ArgumentParser(
        prog="python -m corral.simulate", description=__doc__
    )
    parser.add_argument("--seeds", type=int, default=500, help="number of worlds")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument(
        "--services",
        action="store_true",
        help=f"run worlds with services: add {FIRST_WITH_SERVICES:,} to --first",
    )
    parser.add_argument("--seed", type=int, help="run only the world of this seed")
    parser.add_argument("--verbose", action="store_true", help="print each event")
    parser.add_argument(
        "--keep-going",
        action="store_true",
        help="do not stop when an invariant is broken",
    )
    namespace = parser.parse_args()
    if namespace.seed is not None:
        seeds = range(namespace.seed, namespace.seed + 1)
    else:
        first = namespace.first + (FIRST_WITH_SERVICES if namespace.services else 0)
        seeds = range(first, first + namespace.seeds)
    began = time.monotonic()
    tally = WorldSums()
    for seed in seeds:
        outcome = simulate(seed, verbose=namespace.verbose)
        tally.add(outcome)
        if outcome.rule and namespace.keep_going:
            print(breach_text(outcome), file=sys.stderr, flush=True)
        elif outcome.rule:
            _print_outcome(outcome, in_full=not namespace.verbose)
            break
    print(tally.text(time.monotonic() - began))
    return 1 if tally.broken else 0


def _print_outcome(outcome: WorldOutcome, *, in_full: bool) -> None:
    """Print the command that replays the world and, if `in_full`, its last events. They
    are omitted if each was printed when it happened."""
    for line in outcome.lines if in_full else ():
        print(line)
    print(f"replay: python -m corral.simulate --seed {outcome.seed} --verbose")


if __name__ == "__main__":
    sys.exit(main())
