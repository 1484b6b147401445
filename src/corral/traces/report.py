"""A self-contained HTML page about a simulation, with its metrics, the waiting times,
and how many GPUs were in use."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from corral.plan.page import page as page_of
from corral.plan.report import (
    Figure,
    FigureSeries,
    PlannerReport,
    ReportTable,
    TableColumn,
)
from corral.replay.array_replay import ReplayEvent

POINTS: Final = 100
LONGEST: Final = 1e8  # seconds; longer waits are drawn at the edge
MARKS: Final = (
    *(
        (1.0, "1 s"),
        (10.0, "10 s"),
        (60.0, "1 min"),
        (600.0, "10 min"),
        (3_600.0, "1 h"),
    ),
    *(
        (36_000.0, "10 h"),
        (86_400.0, "1 d"),
        (864_000.0, "10 d"),
        (8_640_000.0, "100 d"),
    ),
    (86_400_000.0, "1,000 d"),
)
KINDS: Final = ("start", "preempted", "end", "promise", "failed")
Results = Mapping[str, Mapping[str, Any]]


def event_row(policy: str, event: ReplayEvent, jobs: Sequence[str]) -> dict[str, Any]:
    """Return the row for an event in the event file. A start has one row for each node
    of the gang, with `node` and `gpus`. The job is given by its name in the log and by
    its position in order of submission, the node by its index in the list of nodes;
    both count from 0."""
    job, kind = jobs[event.job], KINDS[event.kind]
    row = {
        "policy": policy,
        "at_s": event.at,
        "event": kind,
        "job": job,
        "row": event.job,
    }
    if event.kind == 0:
        return row | {
            "node": event.node,
            "gpus": event.gpus,
            "service_s": event.service,
        }
    return row | {"starts_by_s" if event.kind == 3 else "service_s": event.service}


def curve(waits: Sequence[float]) -> list[float]:
    """Return the waiting times at equally spaced quantiles of all jobs, from the
    shortest to the longest."""
    ranked = sorted(waits)
    return [ranked[point * (len(ranked) - 1) // POINTS] for point in range(POINTS + 1)]


def page(answer: Mapping[str, Any]) -> str:
    """Return the report as HTML without scripts and without external resources."""
    return page_of(report(answer))


def report(answer: Mapping[str, Any]) -> PlannerReport:
    policies: Results = answer["policies"]
    skipped = answer["skipped"] + answer["too_large"]
    left_out = f"{skipped} rows of the log were not replayed." if skipped else ""
    return PlannerReport(
        title=f"{answer['trace']} on {answer['nodes']} nodes, {answer['gpus']} GPUs",
        verdict="",
        warnings=(left_out,) if left_out else (),
        answers=(),
        figures=(_wait_time_figure(policies), _gpu_usage_figure(policies)),
        tables=tuple(
            report_table
            for report_table in (
                _summary_table(policies),
                _mean_wait_table(policies, "sizes"),
                _mean_wait_table(policies, "queues"),
            )
            if report_table.rows
        ),
    )


def _summary_table(policies: Results) -> ReportTable:
    first_results = next(iter(policies.values()))
    keys = [
        key for key, value in first_results.items() if isinstance(value, int | float)
    ]
    rows = {
        _format_metric_name(key): [policy[key] for policy in policies.values()]
        for key in keys
    }
    return _build_table("Numbers", policies, "", rows)


def _format_metric_name(key: str) -> str:
    """Return the display name of a metric. For example: jct p99 (s) for jct_p99_s."""
    metric_name = key.removesuffix("_s").replace("_", " ").replace("gpu", "GPU")
    return f"{metric_name} (s)" if key.endswith("_s") else metric_name


def _mean_wait_table(policies: Results, kind: str) -> ReportTable:
    first_results = next(iter(policies.values()))
    rows = {
        f"{label} ({subset_metrics['jobs']} jobs)": [
            policy[kind][label]["wait_mean_s"] for policy in policies.values()
        ]
        for label, subset_metrics in first_results[kind].items()
    }
    corner = kind.removesuffix("s")
    return _build_table(f"Mean wait by {corner}, in seconds", policies, corner, rows)


def _build_table(
    title: str, policies: Results, corner: str, rows: Mapping[str, Sequence[float]]
) -> ReportTable:
    return ReportTable(
        title=title,
        columns=tuple(TableColumn(name=name) for name in (corner, *policies)),
        rows=tuple((label, *values) for label, values in rows.items()),
    )


def _wait_time_figure(policies: Results) -> Figure:
    longest = max(max(numbers["waits_s"]) for numbers in policies.values())
    max_wait = min(LONGEST, max(10.0, longest))
    return Figure(
        title="Share of jobs that waited at most this long",
        x=TableColumn(name="wait"),
        y=TableColumn(name="share of jobs", unit="%"),
        series=tuple(
            FigureSeries(
                name=name,
                points=tuple(
                    (min(max_wait, max(1.0, wait)), 100.0 * point / POINTS)
                    for point, wait in enumerate(numbers["waits_s"])
                ),
            )
            for name, numbers in policies.items()
        ),
        x_marks=tuple(
            (mark_seconds, mark_label)
            for mark_seconds, mark_label in MARKS
            if mark_seconds <= max_wait
        ),
        x_is_log=True,
    )


def _gpu_usage_figure(policies: Results) -> Figure:
    return Figure(
        title="Share of GPUs held, from the first submission to the last",
        x=TableColumn(name="submission"),
        y=TableColumn(name="share of GPUs", unit="%"),
        series=tuple(
            FigureSeries(
                name=name,
                points=tuple(
                    ((window_index + 0.5) / len(numbers["used"]), 100.0 * share)
                    for window_index, share in enumerate(numbers["used"])
                ),
            )
            for name, numbers in policies.items()
        ),
        x_marks=((0.0, "first"), (1.0, "last")),
    )
