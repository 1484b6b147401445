"""Tables of a replay: the waits and the use of GPUs under each policy."""

from typing import Any, Final

from corral.cli.printing import note, say, show_table, table
from corral.domain.units import duration_text, share_text

_LEGEND: Final = (
    "jct: mean time from the submission to the end of a job; wait: jct without the run "
    "time; p99: 99 % of the jobs have at most this; slowdown: jct divided by the run "
    "time; used: share of the GPU time that jobs held; split: share that was idle on "
    "partly used nodes while jobs waited"
)


def print_results(results: dict[str, dict[str, Any]], *, by: bool) -> None:
    result_table = table(
        "policy",
        "jct",
        "jct p99",
        "wait",
        "p99",
        "longest",
        "slowdown",
        "used",
        "split",
        "preempted",
        "lost GPU h",
        right=("slowdown", "used", "split", "preempted", "lost GPU h"),
    )
    for name, numbers in results.items():
        result_table.add_row(
            name,
            *(
                duration_text(numbers[key])
                for key in (
                    "jct_mean_s",
                    "jct_p99_s",
                    "wait_mean_s",
                    "wait_p99_s",
                    "wait_max_s",
                )
            ),
            f"{numbers['slowdown_mean']:.1f}",
            share_text(numbers["utilisation"], 1),
            share_text(numbers["fragmentation"], 1),
            str(numbers["preemptions"]),
            f"{numbers['lost_gpu_s'] / 3_600:.0f}",
        )
    show_table(result_table)
    note(_LEGEND)
    for kind in ("queues", "sizes") if by else ():
        say()
        _show_parts(results, kind)


def _show_parts(results: dict[str, dict[str, Any]], kind: str) -> None:
    """Print a table with one row for each queue or job size (`kind`), and the mean and
    the longest wait under each policy."""
    first_result = next(iter(results.values()))
    waits = [
        f"{name} {wait_label}" for name in results for wait_label in ("wait", "longest")
    ]
    group_table = table(
        kind.removesuffix("s"), "jobs", "GPU h", *waits, right=("jobs", "GPU h")
    )
    for label, group_metrics in first_result[kind].items():
        group_table.add_row(
            label,
            str(group_metrics["jobs"]),
            f"{group_metrics['gpu_hours']:.0f}",
            *(
                duration_text(numbers[kind][label][key])
                for numbers in results.values()
                for key in ("wait_mean_s", "wait_max_s")
            ),
        )
    show_table(group_table)
