"""python -m corral.simulate --seeds 500, or one world told in full: --seed 17 --verbose."""

import argparse
import sys
import time
from collections import Counter

from corral.simulate.scene import Outcome, simulate


def main() -> int:
    """Run the worlds; 1 when an invariant was broken."""
    parser = argparse.ArgumentParser(prog="python -m corral.simulate", description=__doc__)
    parser.add_argument("--seeds", type=int, default=500, help="how many worlds")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seed", type=int, help="this world only")
    parser.add_argument("--verbose", action="store_true", help="tell each event")
    parser.add_argument("--keep-going", action="store_true", help="do not stop at a breach")
    asked = parser.parse_args()
    if asked.seed is not None:
        seeds = range(asked.seed, asked.seed + 1)
    else:
        seeds = range(asked.first, asked.first + asked.seeds)
    began = time.monotonic()
    broken: list[Outcome] = []
    jobs = attempts = commits = 0
    virtual_seconds = 0.0
    for seed in seeds:
        outcome = simulate(seed, verbose=asked.verbose)
        jobs += outcome.jobs
        attempts += outcome.attempts
        commits += outcome.commits
        virtual_seconds += outcome.virtual_seconds
        if outcome.rule:
            broken.append(outcome)
            _tell(outcome, in_full=not asked.keep_going and not asked.verbose)
            if not asked.keep_going:
                break
    seconds = time.monotonic() - began
    print(
        f"{len(seeds)} worlds, {virtual_seconds / 3600:.1f} simulated hours, {jobs} jobs, "
        f"{attempts} attempts, {commits} commits in {seconds:.1f} s: {len(broken)} broken"
    )
    if broken:
        print(dict(Counter(outcome.rule for outcome in broken)))
    return 1 if broken else 0


def _tell(outcome: Outcome, *, in_full: bool) -> None:
    for line in outcome.lines if in_full else ():
        print(line)
    print(f"seed {outcome.seed} broke {outcome.rule}: {outcome.text}")
    if in_full:
        print(f"replay: python -m corral.simulate --seed {outcome.seed} --verbose")


if __name__ == "__main__":
    sys.exit(main())
