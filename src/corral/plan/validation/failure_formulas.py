"""Check of the failure formulas against the failures that clusters report."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from corral.catalog.failures import ClusterFailures, rate_of, seen
from corral.plan.reliability.plan import mtbf_seconds, reliability
from corral.plan.reliability.request import ReliabilityRequest
from corral.plan.report import ReportTable, columns
from corral.plan.rows.row import Row

LLAMA = "Meta Llama 3 405B pre-training"
MEGASCALE = "ByteDance MegaScale production run"


@dataclass(frozen=True, slots=True, kw_only=True)
class FormulaCheck:
    """A measured value next to the prediction and its range, `low` to `high`.

    With `at_least`, the measured value is a lower bound, so a higher prediction agrees
    too.
    """

    what: str
    unit: str
    measured: float
    predicted: float
    low: float
    high: float
    at_least: bool = False

    @property
    def within(self) -> bool:
        return self.measured <= self.high and (
            self.at_least or self.low <= self.measured
        )


def held_failures(rows: Sequence[Row]) -> tuple[FormulaCheck, ...]:
    """Return all checks of the formulas. `rows`: the rows of
    validation/data/failures.csv.gz. Raises: KeyError if a needed row is missing."""
    return (*_mtbf_checks(rows), *_goodput_checks(rows))


def _mtbf_checks(rows: Sequence[Row]) -> Iterator[FormulaCheck]:
    """Yield checks of mean times between failures: of each cluster, predicted from the
    others, and of jobs on RSC-1."""
    for cluster_failures in seen():
        yield _left_out(cluster_failures)
    rsc = next(
        cluster_failures
        for cluster_failures in seen()
        if cluster_failures.name == "rsc-1"
    )
    for gpus in (16_384, 131_072):
        hours = _metric_value(
            rows, "RSC-1 projection", "job mean time to failure, projected", gpus
        )
        own_hours = mtbf_seconds(gpus // 8, rsc.rate) / 3_600
        yield FormulaCheck(
            what=f"RSC-1's own projection to {gpus:,} GPUs, by the rate of its nodes",
            unit="h",
            measured=hours,
            predicted=own_hours,
            low=0.9 * own_hours,
            high=1.1 * own_hours,
        )
    hours = _metric_value(
        rows, "RSC-1 fit", "job mean time to failure, measured", 1_024
    )
    rate = rate_of("ampere", without="rsc-1")
    yield _compare_mtbf(
        "RSC-1's jobs of 1,024 GPUs, by other clusters",
        128,
        hours,
        rate.usual,
        rate.low,
        rate.high,
    )


def _left_out(one: ClusterFailures) -> FormulaCheck:
    other_rates = rate_of(one.architecture, without=one.name)
    hours = mtbf_seconds(one.nodes, one.rate) / 3_600
    return _compare_mtbf(
        f"{one.title}, by the other clusters",
        one.nodes,
        hours,
        other_rates.usual,
        other_rates.low,
        other_rates.high,
    )


def _compare_mtbf(
    what: str, nodes: int, hours: float, usual: float, low_rate: float, high_rate: float
) -> FormulaCheck:
    return FormulaCheck(
        what=f"between failures: {what}",
        unit="h",
        measured=hours,
        predicted=mtbf_seconds(nodes, usual) / 3_600,
        low=mtbf_seconds(nodes, high_rate) / 3_600,
        high=mtbf_seconds(nodes, low_rate) / 3_600,
    )


def _goodput_checks(rows: Sequence[Row]) -> Iterator[FormulaCheck]:
    """Yield checks of the useful share of time: of Llama 3 with all its interruptions,
    including planned ones, and of MegaScale's 175B model with the rates of other
    clusters."""
    counted = round(_metric_value(rows, LLAMA, "interruptions total", 16_384))
    llama = ReliabilityRequest(
        gpus=16_384,
        days=49.0,
        rate=counted / (2_048 * 54) * 1_000,
        counted=counted,
        parameters=405e9,
        write_gb_per_s=_metric_value(
            rows, LLAMA, "storage fabric sustained throughput", 16_384
        ),
    )
    megascale = ReliabilityRequest(
        gpus=12_288, days=30.0, gpu="a100-sxm-80", parameters=175e9
    )
    for run_title, run, system, metric, gpus in (
        ("Llama 3, 54 days", llama, LLAMA, "effective training time", 16_384),
        (
            "MegaScale, weeks",
            megascale,
            MEGASCALE,
            "effective training time rate",
            12_288,
        ),
    ):
        plan_found = reliability(run)
        yield FormulaCheck(
            what=f"goodput: {run_title}",
            unit="%",
            measured=_metric_value(rows, system, metric, gpus),
            predicted=100 * plan_found.best.goodput,
            low=100 * plan_found.worst.goodput,
            high=100 * plan_found.finest.goodput,
            at_least=True,
        )


def _metric_value(rows: Sequence[Row], system: str, metric: str, gpus: int) -> float:
    for row in rows:
        if (row["system"], row["metric"], row["n_gpus"]) == (system, metric, str(gpus)):
            return float(row["value"])
    raise KeyError(f"{system}: {metric} of {gpus} GPUs")


def failures_table(held: Sequence[FormulaCheck]) -> ReportTable:
    return ReportTable(
        title="Failures",
        columns=columns("what", "measured", "predicted", "its band", "within"),
        rows=tuple(
            (
                check.what,
                f"{'more than ' if check.at_least else ''}{check.measured:.3g} {check.unit}",
                f"{check.predicted:.3g} {check.unit}",
                f"{check.low:.3g} to {check.high:.3g}",
                "yes" if check.within else "no",
            )
            for check in held
        ),
    )
