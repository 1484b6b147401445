"""How far off forecasts of demand are, against seasonal naive, on logs of jobs.

Run: .venv/bin/python benchmarks/capacity_forecast.py TRACE.csv.gz ... [--hours]

By days, 14 days ahead; with --hours by hours, a day ahead. From each moment of the log only what
was known then is used. docs/decisions/0049 has what it found.
"""

import argparse
from pathlib import Path

from corral.domain.errors import SpecInvalid
from corral.plan.capacity.demand import loads
from corral.plan.capacity.forecast import OWN, forecast
from corral.traces.traces import read_trace

BY_DAY = (24.0, 7, 14)  # hours of a step, steps of a season, steps ahead
BY_HOUR = (1.0, 24, 24)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("traces", nargs="+", type=Path)
    parser.add_argument("--hours", action="store_true")
    asked = parser.parse_args()
    hours, season, horizon = BY_HOUR if asked.hours else BY_DAY
    print(
        f"{'trace':28}{'forecasts':>10}{'error':>8}{'pinball':>9}{'held':>7}{'naive held':>12}"
    )
    for path in asked.traces:
        series = loads(read_trace(path).workload, hours * 3_600)
        try:
            found = forecast(series, step_hours=hours, season=season, horizon=horizon)
        except SpecInvalid as refused:
            print(f"{path.name:28}{refused.message}")
            continue
        named = {one.method: one for one in found.tried}
        own = named.pop(OWN)
        naive = next(iter(named.values()))
        pinball = (own.pinball or 0.0) / (naive.pinball or 1.0)
        print(
            f"{path.name:28}{own.origins:>10}{own.mae / naive.mae:>8.2f}{pinball:>9.2f}"
            f"{own.held or 0:>7.0%}{naive.held or 0:>12.0%}"
        )


if __name__ == "__main__":
    main()
