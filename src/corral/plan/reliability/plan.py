"""Reliability plan of a long run: failure rate, checkpoint interval, and share of
useful time."""

from dataclasses import dataclass, replace
from typing import Final

from corral.catalog.failures import USUAL_GPUS, failing_parts, rate_of, recovery
from corral.domain.errors import Conflict
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
from corral.plan.parse.models import model_said
from corral.plan.reliability.request import ReliabilityRequest
from corral.plan.text import brief

DAY: Final = 86_400.0
NODE_HOURS: Final = 24_000.0  # 1,000 node-days, the usual unit of failure rates
USUAL: Final = "llama-3.1-70b"  # where nothing says how large a save is
QUICKER: Final = (1.0, 0.5, 0.25, 0.1)  # times the restart, and the stall of a save
MORE_SPARES: Final = 3  # rows of the table beyond those that suffice


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalOutcome:
    """Result of one checkpoint interval for the run. `goodput`: the useful share of the
    time."""

    name: str
    interval_seconds: float
    goodput: float
    wall_days: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Faster:
    """Result with a faster restart or checkpoint. `restart_share`, `stall_share`: the
    new times as shares of the old. `kept`: the result."""

    restart_share: float
    stall_share: float
    kept: IntervalOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Spared:
    """A number of spare nodes. `enough`: share of the time in which enough nodes work
    with them."""

    spares: int
    enough: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Reliability:
    """Reliability of a run.

    `rate`, `rate_low` and `rate_high` are failures per 1,000 node-days of these nodes.
    `saving` has the checkpoint costs at the usual rate. `best`, `worst` and `finest`
    are the results for the usual, the high and the low rate, each at its own best
    interval. `spares`, `spares_few` and `spares_many` are the spare nodes for the
    usual, low and high rate; None if even as many spares as the run has nodes do not
    suffice. `remarks` lists the assumptions for values not given. `by_part` has the
    expected failures of the run by failing part.
    """

    run: ReliabilityRequest
    rate: float
    rate_low: float
    rate_high: float
    saving: Saving
    chance: float
    failures: float
    best: IntervalOutcome
    worst: IntervalOutcome
    finest: IntervalOutcome
    intervals: tuple[IntervalOutcome, ...]
    faster: tuple[Faster, ...]
    spares: int | None
    spares_few: int | None
    spares_many: int | None
    spared: tuple[Spared, ...]
    by_part: tuple[tuple[str, float], ...]
    remarks: tuple[str, ...]
    sources: tuple[str, ...]

    @property
    def mtbf_hours(self) -> float:
        return self.saving.mtbf_seconds / 3_600

    @property
    def lost_gpu_hours(self) -> float:
        """Return the GPU-hours lost to checkpoints, restarts and repeated work."""
        return (self.best.wall_days - self.run.days) * 24 * self.run.held_gpus


def reliability(run: ReliabilityRequest) -> Reliability:
    """Return the reliability of a run.

    Raises: Conflict if failures come so fast that the run would make almost no
    progress.
    Source: exponential failures (perf/failures.py) at rates measured on clusters
    (catalog/data/failures.csv); times from catalog/data/recovery.csv.
    """
    remarks: list[str] = []
    sources: list[str] = []
    run = _resolve_parameters(run, remarks)
    rate, lower_rate, upper_rate = _failure_rates(run, remarks, sources)
    unsaved = _unsaved_seconds(run, remarks) if run.async_saves else 0.0
    saving = _checkpoint_costs(run, rate, unsaved, remarks)
    best_outcome, worst, finest = (
        _best_interval(run, _at_rate(run, saving, per), unsaved)
        for per in (rate, upper_rate, lower_rate)
    )
    if best_outcome.goodput < 0.01:
        raise _no_progress_error(run, saving)
    wall = best_outcome.wall_days * DAY
    failures = wall / saving.mtbf_seconds
    repair = _value_or_usual(
        run.repair_hours,
        "repair",
        remarks,
        "a failed node is back after {:g} h; change it with --repair-hours",
    )
    fewest_spares, spares, most_spares = (
        _required_spares(run, repair, per) for per in (lower_rate, rate, upper_rate)
    )
    return Reliability(
        run=run,
        rate=rate,
        rate_low=lower_rate,
        rate_high=upper_rate,
        saving=saving,
        chance=chance_of_failure(wall, saving.mtbf_seconds),
        failures=failures,
        best=best_outcome,
        worst=worst,
        finest=finest,
        intervals=(replace(best_outcome, name="exact"), *_intervals(run, saving)),
        faster=_faster_recoveries(run, saving, unsaved),
        spares=spares,
        spares_few=fewest_spares,
        spares_many=most_spares,
        spared=_spare_options(run, spares, NODE_HOURS / rate, repair),
        by_part=tuple(
            (name, share * failures) for name, share in part_shares(run.each)
        ),
        remarks=tuple(remarks),
        sources=tuple(sources),
    )


def _resolve_parameters(
    run: ReliabilityRequest, remarks: list[str]
) -> ReliabilityRequest:
    """Return the request with its `parameters` filled in from the model, if they are
    needed for the size of a save.

    Raises: NotFound, ModelRefused.
    """
    if run.parameters is not None or not run.model and run.stall_seconds is not None:
        return run
    if not run.model:
        remarks.append(
            f"the size of checkpoints is that of {USUAL}; change it with a model"
        )
    return replace(run, parameters=float(model_said(run.model or USUAL).parameters))


def part_shares(node_gpus: int) -> list[tuple[str, float]]:
    """Return the share of each part in all failures on nodes with `node_gpus` GPUs;
    they sum to 1."""
    weights = [
        (
            failing_part.title,
            failing_part.share
            * (node_gpus / USUAL_GPUS if failing_part.per == "gpu" else 1.0),
        )
        for failing_part in failing_parts()
    ]
    total_weight = sum(weight for _, weight in weights)
    return [(name, weight / total_weight) for name, weight in weights]


def size_factor(node_gpus: int) -> float:
    """Return the failure rate of a node with `node_gpus` GPUs relative to a node with
    8. Failures of parts that each GPU has scale with the GPUs; others do not."""
    return sum(
        failing_part.share
        * (node_gpus / USUAL_GPUS if failing_part.per == "gpu" else 1.0)
        for failing_part in failing_parts()
    )


def mtbf_seconds(nodes: int, rate: float) -> float:
    """Return the mean time between failures of a run on `nodes` nodes, at a rate per
    1,000 node-days."""
    return 1_000 * DAY / (rate * nodes)


def _failure_rates(
    run: ReliabilityRequest, remarks: list[str], sources: list[str]
) -> tuple[float, float, float]:
    if run.rate is not None:
        if run.counted is None:
            remarks.append(
                "the given rate is assumed to be within 10 %; give the number of failures behind "
                "it with --counted"
            )
            return run.rate, run.rate * 0.9, run.rate * 1.1
        lower_count, upper_count = count_band(run.counted)
        return (
            run.rate,
            run.rate * lower_count / run.counted,
            run.rate * upper_count / run.counted,
        )
    usual = rate_of(run.architecture)
    factor = size_factor(run.each)
    remarks.append(
        f"{usual.usual * factor:.2f} failures per 1,000 node-days ({usual.source}); measured rates "
        f"of clusters are {usual.low:g} to {usual.high:g}; change it with --rate"
    )
    sources.append("failure rates of clusters: catalog/data/failures.csv")
    return usual.usual * factor, usual.low * factor, usual.high * factor


def _checkpoint_costs(
    run: ReliabilityRequest, rate: float, unsaved_seconds: float, remarks: list[str]
) -> Saving:
    """Return the costs of checkpoints and restarts. A failure also loses the steps made
    during an unfinished background save: `unsaved_seconds`."""
    stall = run.stall_seconds
    if stall is None:
        stall = _write_seconds(run, remarks)
        if run.async_saves:
            stall /= recovery("async")
            remarks.append(
                f"a background save stops training for 1/{recovery('async'):g} of the write time"
            )
    restart = run.restart_minutes
    if restart is None:
        detect, restore = recovery("detect"), recovery("restore")
        restart = detect + restore
        remarks.append(
            f"a restart takes {detect:g} min to find the fault and {restore:g} min to load; "
            "change it with --restart-minutes"
        )
    return Saving(
        mtbf_seconds=mtbf_seconds(run.nodes, rate),
        save_seconds=stall,
        restart_seconds=restart * 60 + unsaved_seconds,
    )


def _write_seconds(run: ReliabilityRequest, remarks: list[str]) -> float:
    """Return the time to write one whole checkpoint, by its size and the storage's
    speed."""
    speed = run.write_gb_per_s
    if speed is None:
        speed = recovery("write") * run.held_gpus
        remarks.append(
            f"saves are written at {recovery('write'):g} GB/s per GPU, {brief(speed)} GB/s in "
            "all; change it with --write-gb-per-s"
        )
    size = recovery("checkpoint") * (run.parameters or 0.0)
    remarks.append(
        f"a save has {recovery('checkpoint'):g} bytes per parameter: {size / 1e9:,.0f} GB"
    )
    return size / (speed * 1e9)


def _unsaved_seconds(run: ReliabilityRequest, remarks: list[str]) -> float:
    """Return the seconds until a background save is complete; 0 if unknown. No other
    save begins before that."""
    if run.parameters is None:
        remarks.append(
            "the time to write a background save is not known, and counts as 0 s; set "
            "--parameters"
        )
        return 0.0
    return _write_seconds(run, [])


def _value_or_usual(
    given: float | None, name: str, remarks: list[str], words: str
) -> float:
    if given is not None:
        return given
    usual = recovery(name)
    remarks.append(words.format(usual))
    return usual


def _at_rate(run: ReliabilityRequest, saving: Saving, rate: float) -> Saving:
    return replace(saving, mtbf_seconds=mtbf_seconds(run.nodes, rate))


def _best_interval(
    run: ReliabilityRequest, saving: Saving, unsaved_seconds: float
) -> IntervalOutcome:
    """Return the outcome at the best interval, which is at least the time of a
    background save."""
    work = run.days * DAY
    return _evaluate_interval(
        "best", run, max(work / best_parts(work, saving), unsaved_seconds), saving
    )


def _evaluate_interval(
    name: str, run: ReliabilityRequest, interval_seconds: float, saving: Saving
) -> IntervalOutcome:
    wall = expected_seconds(run.days * DAY, interval_seconds, saving)
    return IntervalOutcome(
        name=name,
        interval_seconds=interval_seconds,
        goodput=run.days * DAY / wall,
        wall_days=wall / DAY,
    )


def _intervals(run: ReliabilityRequest, saving: Saving) -> list[IntervalOutcome]:
    """Return the outcomes of several intervals. Each interval is rounded so that the
    run has a whole number of intervals."""
    seconds_by_name = {
        "Young": young_seconds(saving),
        "Daly": max(1.0, daly_seconds(saving)),
    }
    if run.interval_minutes is not None:
        seconds_by_name["asked"] = run.interval_minutes * 60
    seconds_by_name["every hour"] = 3_600.0
    work = run.days * DAY
    even = {
        name: work / max(1, round(work / seconds))
        for name, seconds in seconds_by_name.items()
    }
    return [
        _evaluate_interval(name, run, seconds, saving) for name, seconds in even.items()
    ]


def _faster_recoveries(
    run: ReliabilityRequest, saving: Saving, unsaved_seconds: float
) -> tuple[Faster, ...]:
    pairs = [(share, 1.0) for share in QUICKER] + [
        (1.0, share) for share in QUICKER[1:]
    ]
    pairs.append((QUICKER[-1], QUICKER[-1]))
    bare = saving.restart_seconds - unsaved_seconds
    return tuple(
        Faster(
            restart_share=restart,
            stall_share=stall,
            kept=_best_interval(
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


def _required_spares(
    run: ReliabilityRequest, repair_hours: float, rate: float
) -> int | None:
    return spares_for(
        run.nodes,
        run.availability,
        mtbf_hours=NODE_HOURS / rate,
        repair_hours=repair_hours,
        crews=run.crews,
    )


def _spare_options(
    run: ReliabilityRequest, spares: int | None, node_hours: float, repair_hours: float
) -> tuple[Spared, ...]:
    max_spares = run.nodes if spares is None else min(run.nodes, spares + MORE_SPARES)
    rows = sorted({*range(max(0, max_spares - 2 * MORE_SPARES), max_spares + 1), 0})
    return tuple(
        Spared(
            spares=row,
            enough=enough_nodes(
                run.nodes,
                row,
                mtbf_hours=node_hours,
                repair_hours=repair_hours,
                crews=run.crews,
            ),
        )
        for row in rows
    )


def _no_progress_error(run: ReliabilityRequest, saving: Saving) -> Conflict:
    """Return the error for a run that makes no progress. It names the most nodes with
    which half of the time would be useful, with the same saves."""
    lower_bound, upper_bound = 0, run.nodes
    while upper_bound - lower_bound > 1:
        middle = (lower_bound + upper_bound) // 2
        scaled_saving = replace(
            saving, mtbf_seconds=saving.mtbf_seconds * run.nodes / middle
        )
        lower_bound, upper_bound = (
            (middle, upper_bound)
            if goodput(best_seconds(scaled_saving), scaled_saving) >= 0.5
            else (lower_bound, middle)
        )
    able = (
        f"use {lower_bound} nodes or fewer, which make progress half of the time"
        if lower_bound
        else "use nodes with a lower --rate: even one node makes no progress"
    )
    return Conflict(
        f"{run.nodes} nodes fail every {saving.mtbf_seconds:.0f} s, and a restart with its save "
        f"takes {saving.restart_seconds + saving.save_seconds:.0f} s: the run would never end",
        hint=f"{able}; or set shorter --stall-seconds and --restart-minutes",
    )
