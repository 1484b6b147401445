"""What the benchmarks of the replay share: traces, runs of policies, and dated results."""

import os
import platform
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

from corral.replay import Workload, metrics_of, replay
from corral.schedule.arrays.compiled import IS_COMPILED
from corral.schedule.columns.order import POLICIES, Named
from corral.traces.traces import read_trace

TRACES = Path(os.environ.get("CORRAL_TRACES", "../shared/traces"))
RESULTS = Path(__file__).parents[1] / "results"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A log and the nodes to replay it on."""

    name: str
    log: str
    nodes: Sequence[int]

    @property
    def workload(self) -> Workload:
        return read_trace(TRACES / f"{self.log}.csv.gz").workload


VENUS = Case(name="Venus 72x8", log="helios_venus", nodes=[8] * 72)
PAI = Case(name="PAI 56x8", log="pai2020_sample", nodes=[8] * 56)
PHILLY = Case(name="Philly 64x8", log="philly", nodes=[8] * 64)
KTH = Case(name="KTH-SP2 100x1", log="kth_sp2_1996", nodes=[1] * 100)
LUBLIN = Case(name="Lublin 256x1", log="lublin_256", nodes=[1] * 256)


def restarting(named: Named, seconds: float) -> Named:
    return replace(named, policy=named.policy._replace(restart_seconds=seconds))


def run(
    case: Case, work: Workload, policy: str, *, restart_seconds: float = 60.0
) -> dict[str, Any]:
    """The numbers of one policy, and its seconds, by the wall clock and of the CPU."""
    begun, cpu = perf_counter(), process_time()
    outcome = replay(work, case.nodes, restarting(POLICIES[policy], restart_seconds))
    numbers = asdict(metrics_of(outcome))
    return numbers | {"wall_s": perf_counter() - begun, "cpu_s": process_time() - cpu}


def keep(name: str, title: str, lines: Iterable[str]) -> None:
    """Print the lines, and write them with date, machine and load where results are kept."""
    text = "\n".join(lines)
    print(text)
    now = datetime.now(UTC)
    load = ", ".join(f"{one:.1f}" for one in os.getloadavg())
    way = "numba" if IS_COMPILED else "plain Python"
    (RESULTS / f"sched-{name}-{now:%Y-%m-%d}.md").write_text(
        f"# {title}\n\n{now:%Y-%m-%d %H:%M} UTC, {platform.machine()} ({_model()}), "
        f"{os.cpu_count()} cores, load {load}; Python {platform.python_version()}, {way}.\n\n"
        f"{text}\n"
    )


def _model() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next(
        (line.split(": ")[1] for line in lines if line.startswith("model name")), "?"
    )


def row(*cells: object) -> str:
    """A row of a table in Markdown."""
    return (
        "| "
        + " | ".join(
            f"{one:,.1f}" if isinstance(one, float) else str(one) for one in cells
        )
        + " |"
    )


def head(*cells: str) -> list[str]:
    return [row(*cells), row(*["---"] * len(cells))]
