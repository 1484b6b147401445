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
from corral.cli.printing import note, print_json
from corral.cli.progress import progress
from corral.cli.replay_input import OWN, replayed
from corral.cli.replay_tables import print_results
from corral.domain.units import counted

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
    name="--json", negative="", show_default=False, help="Print the result as JSON."
)
_POSITIVE = Parameter(validator=Number(gte=0, lte=1e9))
_SEED = Parameter(validator=Number(gte=0))
_PARTS = Parameter(negative="", show_default=False)
_POLICIES = Parameter(
    consume_multiple=True,
    negative="",
    help="Policies to compare; without this option, those of --config, else the policy "
    "named default. fifo: by age, no job overtakes; fifo-skip: by age, jobs that fit "
    "overtake; sjf: shortest job first; las: least attained service first; easy: EASY "
    "backfill; easy-sjf: EASY backfill, shortest time limit first; backfill: EASY "
    "backfill, smaller jobs sooner; conservative: backfill with a reservation for each "
    "job; default: as live queues, or as backfill if all jobs have time limits. "
    "sjf-oracle, srtf-oracle and easy-oracle know all run times in advance.",
)
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
            help="Also show the waits by queue and by size of the jobs.",
        ),
    ] = False
    events: Annotated[
        Path | None,
        Parameter(
            help="Write each start, preemption, promised start and end of a job to "
            "this file, as lines of JSON."
        ),
    ] = None
    html: Annotated[
        Path | None,
        Parameter(help="Write an HTML page with results and plots to this file."),
    ] = None


def simulate(
    trace: Path | None = None,
    /,
    *,
    own: Annotated[bool, _PARTS] = False,
    nodes: Path | None = None,
    cluster: ClusterShape | None = None,
    policy: Annotated[list[Policy] | None, _POLICIES] = None,
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

    Args:
        trace: File with the log: CSV with a header, SWF, or the output of sacct -P or
            corral ps --all --json; may be compressed (.gz).
        own: Replay this cluster's history, with imported jobs, instead of a file; on
            this cluster's nodes unless --nodes or --cluster is given.
        nodes: CSV file of the nodes, one per row, with their GPUs in the column gpus
            (default: the file NAME.nodes.csv next to the log).
        cluster: Nodes instead of a file: 88x8 is 88 nodes with 8 GPUs each, 4x8+2x4 is
            4 nodes with 8 GPUs and 2 with 4.
        config: TOML file with policies of your own: for each, a table with its name. In
            it, like = "default" names the policy to start from, and price = 2.0 changes
            one of its numbers.
        queues: Queue file, as for corral apply. Jobs are replayed by the scheduler of a
            live head, each in the queue with the name in the log's column vc, else in
            the queue default.
        queue_per_vc: Make one queue for each name in the log's column vc. It owns the
            GPUs of its nodes, else GPUs in proportion to its use.
        restart_seconds: Seconds that a preempted or failed job loses at its restart.
        mtbf_hours: Mean hours between failures of one node; it works again at once. 0:
            nodes never fail.
        checkpoint_seconds: Seconds of run time between checkpoints of a job; 0: jobs
            have no checkpoints and lose all work when a node fails.
        seed: Seed of the random failures; the same seed gives the same result.
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
        print_results(answer["policies"], by=outputs.by)


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
            "--queues and --queue-per-vc cannot be combined",
            hint="leave out --queues or --queue-per-vc",
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
            f"the row {QUEUES} is the live scheduler with these queues; {names}: the "
            "same jobs without queues"
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
            note("compiling once (about a minute); later replays begin at once")
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
                    f"replaying {counted(len(work.submits), 'job')} under {name}"
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
            "no job fits on the nodes: a job can have at most "
            f"{counted(gang_gpu_limit, 'GPU')}",
            hint="simulate more or larger nodes, for example: --cluster 88x8",
        )
    if found.skipped:
        note(f"not replayed: {counted(found.skipped, 'row')} without GPUs or an end")
    if too_large:
        note(
            f"not replayed: {counted(too_large, 'job')} too large for the nodes, where "
            f"a job can have at most {counted(gang_gpu_limit, 'GPU')}"
        )
    if found.rounded:
        note(
            f"replayed with whole GPUs: {counted(found.rounded, 'job')} that requested "
            "a part of a GPU"
        )
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
        hint = "raise gpus, borrow or max_per_user of the queues, or use more nodes"
        raise Conflict(
            "every job requests more GPUs than its queue may hold", hint=hint
        )
    if refused:
        note(
            f"not replayed: {counted(len(refused), 'job')} with more GPUs than the "
            "queue of the job may hold"
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
            f"job {work.names[row] or row} would never end: its nodes fail before it "
            "can save a checkpoint",
            hint="raise --mtbf-hours, or lower --checkpoint-seconds (but above 0)",
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
