"""How long a cluster is without a leader when the one it has is killed, and what that costs.

Run: .venv/bin/python benchmarks/engines/takeover.py [--trials 100] [--minutes 60] [--write]

Two heads on one PostgreSQL server, each with a node; one job runs through all trials. In each trial
jobs are submitted one after the other, the leader is killed (kill -9), submitting goes on at the
other, and the killed head is started again. To reach (issue 4): within 10 s, 0 lost, 0 doubled.
"""

import argparse
import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[1]))

from embedded import keep, quantile, report, spread

from tests.postgres import server
from tests.scenarios.heads import Pair, Submitter, health, pair
from tests.scenarios.house import until


@dataclass(frozen=True, kw_only=True)
class Trial:
    """Seconds from the kill until another leads, until a submission is acknowledged again, and
    until both agents talk with it; what was acknowledged meanwhile."""

    leads_seconds: float
    takes_seconds: float
    agents_seconds: float
    acknowledged: int


def trial(two: Pair, number: int) -> Trial:
    old, new = two.leader(), two.standby()
    assert old is not None
    with Submitter(
        new, two.shared / f"ran-{number}", f"t{number}", pause_seconds=0.1
    ) as submitter:
        submitter.until_more(5)
        began = time.monotonic()
        os.kill(old.head_pid(), signal.SIGKILL)
        two.until_leads(new)
        leads_seconds = time.monotonic() - began
        submitter.until_more(1)
        takes_seconds = time.monotonic() - began
        two.until_heard(new)
        agents_seconds = time.monotonic() - began
        submitter.until_more(5)
    submitter.check(new)
    two.up(old)
    until(lambda: health(old).get("leader"), "the killed head stands by")
    return Trial(
        leads_seconds=leads_seconds,
        takes_seconds=takes_seconds,
        agents_seconds=agents_seconds,
        acknowledged=len(submitter.acknowledged),
    )


def trials(most: int, minutes: float) -> tuple[list[Trial], bool]:
    """The trials, and whether the job that ran through all of them was never restarted."""
    done: list[Trial] = []
    give_up_at = time.monotonic() + minutes * 60
    with server() as database, pair(database.database()) as two:
        steady = two.a.submit("through-all", "sleep 100000", resources={"cpu": 0.01})
        two.a.until_state(steady, "RUNNING")
        while len(done) < most and time.monotonic() < give_up_at:
            done.append(trial(two, len(done)))
            print(f"{len(done)}: {done[-1]} load {os.getloadavg()[0]:.1f}", flush=True)
        job = two.a.job(steady)
        return done, (job.state, job.attempt) == ("RUNNING", 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    done, ran_on = trials(asked.trials, asked.minutes)
    figures = {
        "another leads after": [one.leads_seconds for one in done],
        "a submission is acknowledged again after": [one.takes_seconds for one in done],
        "the agents of both machines talk with it after": [
            one.agents_seconds for one in done
        ],
    }
    rows = [
        (what, f"{spread(found)}; p99 {quantile(found, 0.99):.2f} s", "10 s")
        for what, found in figures.items()
    ]
    rows += [
        ("submissions acknowledged", f"{sum(one.acknowledged for one in done):,}", ""),
        ("of them lost", "0", "0"),
        ("of them there, or run, twice", "0", "0"),
        (
            "the job that ran through all",
            "never restarted" if ran_on else "RESTARTED",
            "",
        ),
    ]
    notes = "A trial in which anything is lost or doubled ends the run with an error.\n"
    keep("takeover", report(f"Takeover, {len(done)} trials", rows, notes), asked.write)


if __name__ == "__main__":
    main()
