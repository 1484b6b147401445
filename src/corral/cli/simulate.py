"""`corral simulate`: replay of a job log through the scheduler, under one policy or
several for comparison."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from cyclopts.validators import Number

from corral.cli.error_output import Usage
from corral.cli.files import check_writable, unwritable, write
from corral.cli.head_options import DIR
from corral.cli.option_types import ClusterShape, Hours, Policy, Seconds, WholeNumber
from corral.cli.printing import note, print_json, say, show_table, table
from corral.cli.progress import progress
from corral.cli.replay_input import OWN, replayed
from corral.domain.units import duration_text, share_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from corral.domain.queue_tree import QueueTree
    from corral.replay import NodeFaults, ReplayOutcome, Workload
    from corral.replay.array_replay import ReplayEvent
    from corral.schedule.columns.order import Named
    from corral.traces.traces import Trace

    OnEvent = Callable[[ReplayEvent], None] | None
    Play = Callable[[OnEvent], ReplayOutcome]

_JSON = Parameter(
    name="--json", negative="", show_default=False, help="Answer in JSON."
)
_POSITIVE = Parameter(validator=Number(gte=0, lte=1e9))
_SEED = Parameter(validator=Number(gte=0))
_PARTS = Parameter(negative="", show_default=False)
_SEVERAL = Parameter(consume_multiple=True, negative="")
FEW = 50  # jobs that are enough to have all compiled
QUEUES = "queues"  # what their numbers are called among the policies


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class OutputOptions:
    """Options for the printed and written results."""

    by: Annotated[
        bool,
        Parameter(
            negative="",
            show_default=False,
            help="Show the results also by queue and by size.",
        ),
    ] = False
    events: Annotated[
        Path | None,
        Parameter(
            help="File for every start, preemption, promise and end, as JSON lines."
        ),
    ] = None
    html: Annotated[
        Path | None, Parameter(help="File for a page with results and plots.")
    ] = None


def simulate(
    trace: Path | None = None,
    /,
    *,
    own: Annotated[bool, _PARTS] = False,
    nodes: Path | None = None,
    cluster: ClusterShape | None = None,
    policy: Annotated[list[Policy] | None, _SEVERAL] = None,
    config: Path | None = None,
    queues: Path | None = None,
    queue_per_vc: Annotated[bool, _PARTS] = False,
    restart_seconds: Annotated[Seconds, _POSITIVE] = 60.0,
    mtbf_hours: Annotated[Hours, _POSITIVE] = 0.0,
    checkpoint_seconds: Annotated[Seconds, _POSITIVE] = 3_600.0,
    seed: Annotated[WholeNumber, _SEED] = 0,
    outputs: OutputOptions = OutputOptions(),  # noqa: B008 - frozen
    dir: Annotated[Path | None, DIR] = None,
    json: Annotated[bool, _JSON] = False,
) -> None:
    """Replay a log of jobs in virtual time, and report how long its jobs would have
    waited.

    Policies: fifo (strict), fifo-skip, sjf (by the run times of similar jobs), las
    (least attained service), easy, easy-sjf, conservative, backfill (EASY, smaller
    requests sooner), default: as live queues; backfill if every job has a time limit. A
    policy with -oracle (sjf-, srtf-, easy-) knows how long jobs will run, which no live
    scheduler does.

    Args:
        trace: File with the log: CSV with a header, SWF, or the output of sacct -P or
            corral ps --all --json; may be compressed (.gz).
        own: Use this cluster's history, imported jobs included, on its own nodes.
        nodes: CSV with a column gpus, one node a row (default: the file NAME.nodes.csv
            next to the trace).
        cluster: Nodes: 88x8 is 88 nodes with 8 GPUs each, 4x8+2x4 is four nodes with 8
            GPUs and two with 4.
        policy: One or more policies (default: default).
        config: TOML file with your own policies: [name], like = "default", and numbers
            to change.
        queues: Queue file, as for corral apply: jobs are replayed through the decision
            code of a live head with these queues. Each job is in the queue named like
            its vc, else in the default queue.
        queue_per_vc: Use one queue for each vc instead; the queue owns the vc's GPUs by
            the list of nodes, else by use.
        restart_seconds: Seconds that a preempted or failed job loses at its restart.
        mtbf_hours: Mean hours between failures of a node, which is back at once; 0 is
            never.
        checkpoint_seconds: Seconds between checkpoints of jobs; 0: they save none.
        seed: Seed of the failures: the same seed gives exactly the same result.
    """
    check_writable(outputs.events, outputs.html)
    read_trace, (sizes, owned) = replayed(trace, nodes, cluster, own=own, dir=dir)
    faults = _node_faults(mtbf_hours, checkpoint_seconds, seed)
    tree = _build_queue_tree(read_trace, sizes, owned, queues, per_vc=queue_per_vc)
    policies = _select_policies(policy or (), config, restart_seconds, tree)
    answer = {"trace": OWN if own else str(trace), "restart_s": restart_seconds}
    answer |= _replay_policies(
        read_trace, sizes, policies, faults, outputs, tree, restart_seconds, not json
    )
    _write_results(answer, outputs, json=json)


def _node_faults(
    mtbf_hours: float, checkpoint_seconds: float, seed: int
) -> "NodeFaults":
    from corral.replay import NodeFaults

    return NodeFaults(
        mtbf_seconds=mtbf_hours * 3_600, save_seconds=checkpoint_seconds, seed=seed
    )


def _write_results(
    answer: dict[str, Any], outputs: OutputOptions, *, json: bool
) -> None:
    _write_page(outputs.html, answer)
    if json:
        print_json(answer)
    else:
        _print_results(answer["policies"], by=outputs.by)


def _build_queue_tree(
    found: "Trace",
    sizes: list[int],
    own: dict[str, int],
    queues: Path | None,
    *,
    per_vc: bool,
) -> "QueueTree | None":
    """Return the queue tree for the replay: from the file, or with `per_vc` one queue
    for each vc of the log. None if neither is requested.

    `sizes`: GPUs of each node; `own`: of each vc.
    """
    from corral.traces.queues import left_out_of, read_tree, tree_of_log

    if queues is None and not per_vc:
        return None
    if queues is not None and per_vc:
        raise Usage(
            "--queues and --queue-per-vc both say what the queues are", hint="give one"
        )
    if queues is None:
        return tree_of_log(found, sizes, own)
    tree = read_tree(queues)
    for sentence in left_out_of(tree, found.queues):
        note(sentence)
    return tree


def _select_policies(
    policy: Sequence[str],
    config: Path | None,
    restart_seconds: float,
    tree: "QueueTree | None",
) -> "dict[str, Named]":
    """Return the policies to simulate, by name.

    With queues no policy is required, because the live decision is simulated anyway;
    the result may be empty.
    """
    from corral.traces.policies import chosen

    alone = tree is not None and not policy and config is None
    policies = {} if alone else chosen(policy, config, restart_seconds)
    if policies and tree is not None:
        names = ", ".join(policies)
        note(
            f"{QUEUES} is the live decision with these queues; {names}: one line for all jobs"
        )
    return policies


def _make_policy_replay(
    work: "Workload", sizes: list[int], named: "Named", failures: "NodeFaults"
) -> "Play":
    from corral.replay import replay

    return lambda on_event: replay(
        work, sizes, named, failures=failures, on_event=on_event
    )


def _make_queued_replay(
    work: "Workload",
    queues: Sequence[str],
    sizes: list[int],
    tree: "QueueTree",
    restart_seconds: float,
    failures: "NodeFaults",
) -> "Play":
    from corral.replay.queue_replay import replay_queued
    from corral.traces.queues import names_in

    names = names_in(tree, queues)
    return lambda on_event: replay_queued(
        work,
        sizes,
        tree,
        names,
        restart_seconds=restart_seconds,
        failures=failures,
        on_event=on_event,
    )


def _replay_policies(
    found: "Trace",
    sizes: list[int],
    policies: "dict[str, Named]",
    failures: "NodeFaults",
    outputs: OutputOptions,
    tree: "QueueTree | None",
    restart_seconds: float,
    shows_progress: bool,
) -> dict[str, Any]:
    from corral.replay import compiles_first

    work, too_large = _drop_oversized_jobs(found, sizes, tree)
    _refuse_endless(work, sizes, failures, restart_seconds)
    plays = {
        name: _make_policy_replay(work, sizes, replay_policy, failures)
        for name, replay_policy in policies.items()
    }
    if tree is not None:
        plays[QUEUES] = _make_queued_replay(
            work, found.queues, sizes, tree, restart_seconds, failures
        )
    queues = [found.queues[queue] for queue in work.queues]
    results = {}
    with progress("compiling", shown=shows_progress) as work_progress:
        if policies and compiles_first():
            note("compiling once (about a minute); the next replays begin at once")
            warmup_workload = work.only(range(min(FEW, len(work.submits))))
            for (
                warmup_policy
            ) in policies.values():  # so that wall_s is the replay's own
                _make_policy_replay(warmup_workload, sizes, warmup_policy, failures)(
                    None
                )
        with _event_file(outputs.events, work.names) as write:
            for name, play in plays.items():
                work_progress.doing = (
                    f"replaying {len(work.submits):,} jobs under {name}"
                )
                results[name] = _run_replay(play, queues, write(name))
    return {
        "nodes": len(sizes),
        "gpus": sum(sizes),
        "skipped": found.skipped,
        "too_large": too_large,
        "policies": results,
    }


def _run_replay(play: "Play", queues: list[str], on_event: "OnEvent") -> dict[str, Any]:
    from corral.replay import metrics_of, parts_of, size_labels
    from corral.replay.metrics import SIZES
    from corral.traces.report import curve

    begun = perf_counter()
    outcome = play(on_event)
    numbers = asdict(metrics_of(outcome)) | {"wall_s": perf_counter() - begun}
    by_queue = parts_of(outcome, queues)
    by_size = parts_of(outcome, size_labels(outcome.workload.gpus))
    metrics_by_group = {
        "queues": {
            label: asdict(group_metrics)
            for label, group_metrics in sorted(
                by_queue.items(), key=lambda item: -item[1].gpu_hours
            )
        },
        "sizes": {
            label: asdict(by_size[label]) for _, label in SIZES if label in by_size
        },
    }
    return (
        numbers
        | metrics_by_group
        | {"used": list(outcome.used), "waits_s": curve(outcome.waits)}
    )


def _drop_oversized_jobs(
    found: "Trace", sizes: list[int], tree: "QueueTree | None"
) -> "tuple[Workload, int]":
    """Return (jobs that the nodes and queues can hold at all, number of other jobs).
    `sizes`: GPUs of each node.

    A gang must also fit in equal parts on its nodes if there are queues, because the
    head divides it so.
    """
    from corral.domain.errors import Conflict
    from corral.replay import largest_gang
    from corral.replay.queue_replay import fits

    gang_gpu_limit, gpus = largest_gang(sizes), found.workload.gpus
    able = {size for size in set(gpus) if size <= gang_gpu_limit}
    able = {size for size in able if tree is None or fits(size, sizes)}
    rows = [row for row, size in enumerate(gpus) if size in able]
    too_large = len(gpus) - len(rows)
    if not rows:
        raise Conflict(
            f"no job fits: the nodes hold {gang_gpu_limit} GPUs of one",
            hint="add nodes",
        )
    if found.skipped:
        note(f"{found.skipped} rows have no GPUs or never ended: they are not replayed")
    if too_large:
        note(
            f"{too_large} jobs ask for more than the {gang_gpu_limit} GPUs there are: "
            "they are not replayed"
        )
    if found.rounded:
        note(f"{found.rounded} jobs ask for parts of a GPU: they are given whole ones")
    workload = found.workload.only(rows)
    refused = _jobs_exceeding_queue(workload, found.queues, sizes, tree)
    let = [row for row in range(len(rows)) if row not in refused]
    return workload.only(let), len(gpus) - len(let)


def _jobs_exceeding_queue(
    work: "Workload", queues: Sequence[str], sizes: list[int], tree: "QueueTree | None"
) -> set[int]:
    """Return the rows of the jobs that need more GPUs than their queue may ever hold."""
    from corral.domain.errors import Conflict
    from corral.replay.queue_replay import held_by_no_queue
    from corral.traces.queues import names_in

    if tree is None:
        return set()
    refused = set(held_by_no_queue(work, sizes, tree, names_in(tree, queues)))
    if len(refused) == len(work.submits):
        hint = "give the queues more GPUs, or let them borrow"
        raise Conflict("each job asks for more than its queue may ever hold", hint=hint)
    if refused:
        note(
            f"{len(refused)} jobs ask for more than their queue may hold: they are not replayed"
        )
    return refused


def _refuse_endless(
    work: "Workload", sizes: list[int], failures: "NodeFaults", restart_seconds: float
) -> None:
    """Refuse failures of nodes that are so frequent that some job would never finish.
    `sizes`: GPUs of each node."""
    from corral.domain.errors import Conflict
    from corral.replay.node_failures import endless

    row = endless(work, sizes, failures, restart_seconds)
    if row is not None:
        raise Conflict(
            f"job {work.names[row] or row} would not end: its nodes fail long before it has saved",
            hint="give a longer --mtbf-hours, or a shorter --checkpoint-seconds above 0",
        )


@contextmanager
def _event_file(
    path: Path | None, jobs: Sequence[str]
) -> "Iterator[Callable[[str], Callable[[ReplayEvent], None] | None]]":
    """Open the file for replay events, if one is given. Yield a function that takes the
    name of a policy and returns the callback that writes its events. Without a file,
    that function returns None.

    Args:
        jobs: names of the jobs in the log, by row.
    """
    if path is None:
        yield lambda name: None
        return
    from json import dumps

    from corral.traces.report import event_row

    try:
        with path.open("w") as file:
            yield (
                lambda name: (
                    lambda event: print(dumps(event_row(name, event, jobs)), file=file)
                )
            )
    except OSError as error:
        raise unwritable(path, error.strerror) from error


def _write_page(path: Path | None, answer: dict[str, Any]) -> None:
    from corral.traces.report import page

    if path is not None:
        write(path, page(answer))


def _print_results(results: dict[str, dict[str, Any]], *, by: bool) -> None:
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
