"""How often a long run fails, how often it should save, and what is left of its time."""

from dataclasses import dataclass, replace
from math import isfinite
from typing import Final

from corral.catalog.failures import USUAL_GPUS, failing_parts, rate_of, recovery
from corral.domain.errors import Conflict, SpecInvalid
from corral.perf.failures import (
    Saving,
    best_parts,
    best_seconds,
    chance_of_failure,
    count_band,
    daly_seconds,
    enough_nodes,
    expected_seconds,
    goodput,
    spares_for,
    young_seconds,
)

DAY: Final = 86_400.0
QUICKER: Final = (1.0, 0.5, 0.25, 0.1)  # times the restart, and the stall of a save
MORE_SPARES: Final = 3  # rows of the table beyond those that suffice


@dataclass(frozen=True, slots=True, kw_only=True)
class LongRun:
    """What is asked. None is not said: the catalog's usual value, which the answer tells.

    Attributes:
        nodes: Nodes that the run needs at once.
        work_days: Days of training, were there no failure.
        node_gpus: GPUs of a node.
        architecture: Of the GPUs, for their own rate: hopper, ampere, ...
        rate: Failures that end the run, per 1,000 node-days of these very nodes.
        counted: How many failures were seen, for the band of that rate.
        parameters: Of the model, for the size of a save.
        stall_seconds: How long the run stands still for one save.
        async_saves: Saves are written in the background.
        write_gb_per_s: What storage takes from all nodes together.
        restart_minutes: From a failure until steps go on.
        interval_minutes: Between saves, to be compared with the best.
        repair_hours: Until a broken node is back.
        crews: Nodes that are repaired at once.
        availability: Share of the time in which there are to be enough nodes, spares included.
        usd_per_gpu_hour: What a GPU costs, for what failures cost.
    """

    nodes: int
    work_days: float
    node_gpus: int = USUAL_GPUS
    architecture: str = ""
    rate: float | None = None
    counted: int | None = None
    parameters: float | None = None
    stall_seconds: float | None = None
    async_saves: bool = False
    write_gb_per_s: float | None = None
    restart_minutes: float | None = None
    interval_minutes: float | None = None
    repair_hours: float | None = None
    crews: int | None = None
    availability: float = 0.99
    usd_per_gpu_hour: float | None = None

    def __post_init__(self) -> None:
        least = {"nodes": self.nodes, "node_gpus": self.node_gpus, "work_days": self.work_days}
        given = {
            name: getattr(self, name)
            for name in ("rate", "parameters", "stall_seconds", "write_gb_per_s", "crews",
                         "interval_minutes", "restart_minutes", "repair_hours", "counted")
        }  # fmt: skip
        for name, value in (least | given).items():
            if value is not None and not (value > 0 and isfinite(value)):
                raise SpecInvalid(f"{name} is {value:g}", hint="give a number above 0")
        if not 0 < self.availability < 1:
            hint = "give a share of the time below 1, for example 0.99"
            raise SpecInvalid(f"an availability of {self.availability:g}", hint=hint)

    @property
    def gpus(self) -> int:
        return self.nodes * self.node_gpus


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What one interval between saves keeps of the time. `goodput` is the share of it."""

    name: str
    interval_seconds: float
    goodput: float
    wall_days: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Faster:
    """What a restart and a save of these shares of their time would come to."""

    restart_share: float
    stall_share: float
    kept: Kept


@dataclass(frozen=True, slots=True, kw_only=True)
class Spared:
    """With so many spares the nodes are enough for that share of the time."""

    spares: int
    enough: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Reliability:
    """`rate`, its `rate_low` and `rate_high`: failures per 1,000 node-days of these nodes.
    `saving`: at the usual rate. `best` at that rate, `worst` and `finest` at the high and the low
    one, each at its own best interval. `told`: what was taken where nothing was said.
    `by_part`: expected failures of the run by what fails."""

    run: LongRun
    rate: float
    rate_low: float
    rate_high: float
    saving: Saving
    chance: float
    failures: float
    best: Kept
    worst: Kept
    finest: Kept
    intervals: tuple[Kept, ...]
    faster: tuple[Faster, ...]
    spares: int | None
    spared: tuple[Spared, ...]
    by_part: tuple[tuple[str, float], ...]
    told: tuple[str, ...]
    sources: tuple[str, ...]

    @property
    def mtbf_hours(self) -> float:
        return self.saving.mtbf_seconds / 3_600

    @property
    def lost_gpu_hours(self) -> float:
        """To saves, restarts and work done twice."""
        return (self.best.wall_days - self.run.work_days) * 24 * self.run.gpus


def reliability(run: LongRun) -> Reliability:
    """The answer. Raises: Conflict where the run would hardly ever get from one save to the next.

    Source: exponential failures (perf/failures.py) at rates that clusters have seen
    (catalog/data/failures.csv); times from catalog/data/recovery.csv.
    """
    told: list[str] = []
    sources: list[str] = []
    rate, low, high = _rates(run, told, sources)
    unsaved = _unsaved_seconds(run, told) if run.async_saves else 0.0
    saving = _saving(run, rate, unsaved, told)
    best, worst, finest = (
        _best(run, _at_rate(run, saving, per), unsaved) for per in (rate, high, low)
    )
    if best.goodput < 0.01:
        raise _endless(run, saving)
    wall = best.wall_days * DAY
    failures = wall / saving.mtbf_seconds
    repair = _or(run.repair_hours, "repair", told, "a broken node is back after {:g} h")
    node_hours = 24_000 / rate
    spares = spares_for(
        run.nodes,
        run.availability,
        mtbf_hours=node_hours,
        repair_hours=repair,
        crews=run.crews,
    )
    return Reliability(
        run=run,
        rate=rate,
        rate_low=low,
        rate_high=high,
        saving=saving,
        chance=chance_of_failure(wall, saving.mtbf_seconds),
        failures=failures,
        best=best,
        worst=worst,
        finest=finest,
        intervals=(replace(best, name="exact"), *_intervals(run, saving)),
        faster=_faster(run, saving, unsaved),
        spares=spares,
        spared=_spared(run, spares, node_hours, repair),
        by_part=tuple((name, share * failures) for name, share in part_shares(run.node_gpus)),
        told=tuple(told),
        sources=tuple(sources),
    )


def part_shares(node_gpus: int) -> list[tuple[str, float]]:
    """What part of all failures each thing makes on nodes of so many GPUs; they come to 1."""
    weights = [
        (part.title, part.share * (node_gpus / USUAL_GPUS if part.per == "gpu" else 1.0))
        for part in failing_parts()
    ]
    whole = sum(weight for _, weight in weights)
    return [(name, weight / whole) for name, weight in weights]


def size_factor(node_gpus: int) -> float:
    """How often a node of so many GPUs fails against one of 8: the parts that come with each GPU
    count by their number, the others once."""
    return sum(
        part.share * (node_gpus / USUAL_GPUS if part.per == "gpu" else 1.0)
        for part in failing_parts()
    )


def mtbf_seconds(nodes: int, rate: float) -> float:
    """Of a run on so many nodes, at failures per 1,000 node-days."""
    return 1_000 * DAY / (rate * nodes)


def _rates(run: LongRun, told: list[str], sources: list[str]) -> tuple[float, float, float]:
    if run.rate is not None:
        if run.counted is None:
            told.append("the given rate holds to a tenth: say of how many failures it was counted")
            return run.rate, run.rate * 0.9, run.rate * 1.1
        low, high = count_band(run.counted)
        return run.rate, run.rate * low / run.counted, run.rate * high / run.counted
    usual = rate_of(run.architecture)
    factor = size_factor(run.node_gpus)
    told.append(
        f"{usual.usual * factor:.2f} failures per 1,000 node-days ({usual.source}); clusters have "
        f"seen {usual.low:g} to {usual.high:g}"
    )
    sources.append("failure rates of clusters: catalog/data/failures.csv")
    return usual.usual * factor, usual.low * factor, usual.high * factor


def _saving(run: LongRun, rate: float, unsaved_seconds: float, told: list[str]) -> Saving:
    """What a save in the background has not written is lost too: that much more is done again."""
    stall = run.stall_seconds
    if stall is None:
        stall = _write_seconds(run, told)
        if run.async_saves:
            stall /= recovery("async")
            told.append(f"a save in the background stalls {recovery('async'):g} times less")
    restart = run.restart_minutes
    if restart is None:
        detect, restore = recovery("detect"), recovery("restore")
        restart = detect + restore
        told.append(f"a restart takes {detect:g} min to find the fault and {restore:g} min to load")
    return Saving(
        mtbf_seconds=mtbf_seconds(run.nodes, rate),
        save_seconds=stall,
        restart_seconds=restart * 60 + unsaved_seconds,
    )


def _write_seconds(run: LongRun, told: list[str]) -> float:
    """Of one whole save, by its size and the storage's speed. Raises: SpecInvalid."""
    if run.parameters is None:
        hint = "say how large the model is (--parameters 70e9), or how long a save stalls the run"
        raise SpecInvalid("how long does a save take?", hint=hint)
    speed = run.write_gb_per_s
    if speed is None:
        speed = recovery("write") * run.gpus
        told.append(f"saves are written at {recovery('write'):g} GB/s a GPU, {speed:.3g} in all")
    size = recovery("checkpoint") * run.parameters
    told.append(f"a save has {recovery('checkpoint'):g} bytes a parameter: {size / 1e9:,.0f} GB")
    return size / (speed * 1e9)


def _unsaved_seconds(run: LongRun, told: list[str]) -> float:
    """For how long a save in the background is not whole: no other is begun until it is."""
    if run.parameters is None:
        told.append("how long a save in the background takes is not known: counted as nothing")
        return 0.0
    return _write_seconds(run, [])


def _or(given: float | None, name: str, told: list[str], words: str) -> float:
    if given is not None:
        return given
    usual = recovery(name)
    told.append(words.format(usual))
    return usual


def _at_rate(run: LongRun, saving: Saving, rate: float) -> Saving:
    return replace(saving, mtbf_seconds=mtbf_seconds(run.nodes, rate))


def _best(run: LongRun, saving: Saving, unsaved_seconds: float) -> Kept:
    """At the best interval; none is shorter than a save in the background takes."""
    work = run.work_days * DAY
    return _kept("best", run, max(work / best_parts(work, saving), unsaved_seconds), saving)


def _kept(name: str, run: LongRun, interval_seconds: float, saving: Saving) -> Kept:
    wall = expected_seconds(run.work_days * DAY, interval_seconds, saving)
    return Kept(
        name=name,
        interval_seconds=interval_seconds,
        goodput=run.work_days * DAY / wall,
        wall_days=wall / DAY,
    )


def _intervals(run: LongRun, saving: Saving) -> list[Kept]:
    """Each as near as whole parts of the run come to it."""
    named = {"Young": young_seconds(saving), "Daly": max(1.0, daly_seconds(saving))}
    if run.interval_minutes is not None:
        named["asked"] = run.interval_minutes * 60
    named["every hour"] = 3_600.0
    work = run.work_days * DAY
    even = {name: work / max(1, round(work / seconds)) for name, seconds in named.items()}
    return [_kept(name, run, seconds, saving) for name, seconds in even.items()]


def _faster(run: LongRun, saving: Saving, unsaved_seconds: float) -> tuple[Faster, ...]:
    pairs = [(share, 1.0) for share in QUICKER] + [(1.0, share) for share in QUICKER[1:]]
    pairs.append((QUICKER[-1], QUICKER[-1]))
    bare = saving.restart_seconds - unsaved_seconds
    return tuple(
        Faster(
            restart_share=restart,
            stall_share=stall,
            kept=_best(
                run,
                replace(
                    saving,
                    restart_seconds=bare * restart + unsaved_seconds * stall,
                    save_seconds=saving.save_seconds * stall,
                ),
                unsaved_seconds * stall,
            ),
        )
        for restart, stall in pairs
    )


def _spared(
    run: LongRun, spares: int | None, node_hours: float, repair_hours: float
) -> tuple[Spared, ...]:
    most = run.nodes if spares is None else min(run.nodes, spares + MORE_SPARES)
    rows = sorted({*range(max(0, most - 2 * MORE_SPARES), most + 1), 0})
    return tuple(
        Spared(
            spares=row,
            enough=enough_nodes(
                run.nodes, row, mtbf_hours=node_hours, repair_hours=repair_hours, crews=run.crews
            ),
        )
        for row in rows
    )


def _endless(run: LongRun, saving: Saving) -> Conflict:
    """With the largest run of the same saves that keeps half of its time."""
    low, high = 0, run.nodes
    while high - low > 1:
        middle = (low + high) // 2
        at = replace(saving, mtbf_seconds=saving.mtbf_seconds * run.nodes / middle)
        low, high = (middle, high) if goodput(best_seconds(at), at) >= 0.5 else (low, middle)
    able = f"{low} nodes would keep half of their time" if low else "not even one node gets on"
    return Conflict(
        f"{run.nodes} nodes fail every {saving.mtbf_seconds:.0f} s, and a restart with its save "
        f"takes {saving.restart_seconds + saving.save_seconds:.0f} s: the run would not end",
        hint=f"{able}; or save and restart faster",
    )
