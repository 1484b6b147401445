"""simulate: a log of jobs through the scheduler, under one policy or several side by side."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from cyclopts.validators import Number

from corral.cli.failure import Usage
from corral.cli.output import note, print_json, show_table, table
from corral.domain.units import duration_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from corral.replay import Metrics, Workload
    from corral.replay.replay import Event
    from corral.schedule.order import Named

_JSON = Parameter(name="--json", negative="", show_default=False, help="Answer in JSON.")
_SECONDS = Parameter(validator=Number(gte=0, lte=1e9))


def simulate(
    trace: Path,
    /,
    *,
    nodes: Path | None = None,
    cluster: str | None = None,
    policy: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
    config: Path | None = None,
    restart_seconds: Annotated[float, _SECONDS] = 60.0,
    events: Path | None = None,
    html: Path | None = None,
    json: Annotated[bool, _JSON] = False,
) -> None:
    """Replay a log of jobs in virtual time, and tell how long its jobs would have waited.

    Args:
        trace: CSV with a header, SWF, or the output of sacct -P; may be gzipped.
        nodes: CSV with a column gpus, one node a row; else the file NAME.nodes.csv by the trace.
        cluster: Nodes in words instead: 88x8 is 88 nodes of 8 GPUs, 4x8+2x4 six of two kinds.
        policy: One policy or several; without one, the policy that live queues have by default.
        config: TOML of policies of your own: [name], like = "default", and numbers to change.
        restart_seconds: What a preempted job loses when it starts again.
        events: Write every start, preemption and end to this file, as JSON lines.
        html: Write a page with the numbers and plots to this file.
    """
    from corral.domain.errors import Conflict
    from corral.simulate.report import page
    from corral.simulate.traces import read_trace

    found = read_trace(trace)
    if found.skipped:
        note(f"{found.skipped} rows have no GPUs or never ended: they are not replayed")
    sizes = _sizes(trace, nodes, cluster)
    if max(found.workload.gpus) > sum(sizes):
        largest = f"its largest job asks for {max(found.workload.gpus)} GPUs"
        raise Conflict(f"{largest}, all nodes have {sum(sizes)}", hint="add nodes")
    results: dict[str, dict[str, Any]] = {}
    curves: dict[str, list[float]] = {}
    for name, named in _chosen(policy, config, restart_seconds).items():
        with _event_writer(events, name) as on_event:
            metrics, waits, wall = _run(found.workload, sizes, named, on_event)
        results[name] = asdict(metrics) | {"wall_s": wall}
        curves[name] = waits
    answer = {
        "trace": str(trace),
        "nodes": len(sizes),
        "gpus": sum(sizes),
        "restart_s": restart_seconds,
        "skipped": found.skipped,
        "policies": results,
    }
    if html is not None:
        html.write_text(page(answer, curves))
    if json:
        print_json(answer)
    else:
        _show(results)


def _run(
    workload: "Workload",
    sizes: list[int],
    named: "Named",
    on_event: "Callable[[Event], None] | None",
) -> "tuple[Metrics, list[float], float]":
    from corral.replay import metrics_of, replay

    begun = perf_counter()
    outcome = replay(workload, sizes, named, on_event=on_event)
    metrics = metrics_of(outcome)
    return metrics, outcome.waits, perf_counter() - begun


def _sizes(trace: Path, nodes: Path | None, cluster: str | None) -> list[int]:
    from corral.simulate.traces import read_sizes, sizes_of

    if cluster is not None and nodes is not None:
        raise Usage("--nodes and --cluster both say what the nodes are", hint="give one of them")
    if cluster is not None:
        return sizes_of(cluster)
    beside = trace.with_name(trace.name.removesuffix(".gz").removesuffix(".csv") + ".nodes.csv")
    if nodes is None and not beside.exists():
        raise Usage("no nodes to replay on", hint="add, for example: --cluster 88x8")
    return read_sizes(nodes or beside)


def _chosen(names: list[str] | None, config: Path | None, restart: float) -> "dict[str, Named]":
    from corral.domain.errors import NotFound
    from corral.schedule.order import DEFAULT, POLICIES

    known = dict(POLICIES) | (_configured(config) if config else {})
    asked = names or ([name for name in known if name not in POLICIES] if config else [DEFAULT])
    for name in asked:
        if name not in known:
            raise NotFound("policy", name, list(known), see="corral simulate --help")
    return {
        name: replace(known[name], policy=known[name].policy._replace(restart_seconds=restart))
        for name in asked
    }


def _configured(config: Path) -> "dict[str, Named]":
    """Policies of a TOML file; each is like a named one, but for the numbers that it gives."""
    from tomllib import TOMLDecodeError, loads

    from corral.schedule.order import DEFAULT, POLICIES

    try:
        tables = loads(config.read_text())
        made = {}
        for name, numbers in tables.items():
            base = POLICIES[numbers.pop("like", DEFAULT)]
            values: dict[str, Any] = {key: float(value) for key, value in numbers.items()}
            made[name] = replace(base, policy=base.policy._replace(**values))
    except (OSError, TOMLDecodeError, KeyError, ValueError, TypeError, AttributeError) as error:
        hint = 'write, for example: [patient] like = "default" patience = 2.0'
        raise Usage(f"{config} is not a file of policies: {error}", hint=hint) from error
    return made


@contextmanager
def _event_writer(path: Path | None, name: str) -> "Iterator[Callable[[Event], None] | None]":
    """Writes events to the file, the policy's name in each; nothing without a file."""
    if path is None:
        yield None
        return
    from json import dumps

    with path.open("a") as file:
        yield lambda event: print(dumps({"policy": name} | asdict(event)), file=file)


def _show(results: dict[str, dict[str, Any]]) -> None:
    shown = table(
        "policy", "jct", "jct p99", "wait", "wait p99", "longest wait", "slowdown", "used",
        "preemptions", right=("slowdown", "used", "preemptions"),
    )  # fmt: skip
    for name, numbers in results.items():
        shown.add_row(
            name,
            *(
                duration_text(numbers[key])
                for key in ("jct_mean_s", "jct_p99_s", "wait_mean_s", "wait_p99_s", "wait_max_s")
            ),
            f"{numbers['slowdown_mean']:.1f}",
            f"{numbers['utilisation']:.1%}",
            str(numbers["preemptions"]),
        )
    show_table(shown)
