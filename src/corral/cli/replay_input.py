"""Input of `corral simulate`: jobs and nodes, from a file or from the running cluster."""

from pathlib import Path
from typing import TYPE_CHECKING

from corral.cli.error_output import Usage
from corral.cli.head_options import MOST, Common

if TYPE_CHECKING:
    from corral.client import Client
    from corral.traces.traces import Trace
    from corral.wire.imports import ImportedJob

OWN = "own history"
Nodes = tuple[list[int], dict[str, int]]  # GPUs of each node, and of each vc, if known


def replayed(
    trace: Path | None,
    nodes: Path | None,
    cluster: str | None,
    *,
    own: bool,
    dir: Path | None,
) -> "tuple[Trace, Nodes]":
    """Return the trace to replay and the nodes to replay it on.

    Raises: Usage if no trace or no nodes are given, SpecInvalid if there is nothing to
    replay.
    """
    from corral.traces.traces import read_trace

    if own and trace is not None:
        raise Usage(
            f"--own cannot be combined with the log {trace}",
            hint="leave out --own or the log",
        )
    if own:
        return _of_cluster(dir, nodes, cluster)
    if trace is None:
        raise Usage(
            "the log of jobs is missing",
            hint="run: corral simulate FILE, or: corral simulate --own",
        )
    _refuse_requests(trace)
    return read_trace(trace), _load_replay_nodes(trace, nodes, cluster)


def _refuse_requests(trace: Path) -> None:
    """Refuse a trace of requests to a model. Raises: SpecInvalid."""
    from corral.domain.errors import SpecInvalid
    from corral.traces.request_traces import is_request_trace
    from corral.traces.traces import log_lines

    if is_request_trace(next(log_lines(trace), "")):
        raise SpecInvalid(
            f"{trace} is a trace of requests to a model, not a log of jobs",
            hint=f"run: corral plan serve MODEL --replay {trace}",
        )


def _of_cluster(
    dir: Path | None, nodes: Path | None, cluster: str | None
) -> "tuple[Trace, Nodes]":
    """Return this cluster's ended and imported jobs as a trace, and the nodes to replay
    it on: the given nodes, else the cluster's current nodes."""
    from corral.cli.ps import JobQuery, newest_jobs
    from corral.traces.traces import trace_of
    from corral.traces.traces_corral import logged, logged_import

    with Common(dir=dir).client() as client:
        jobs = newest_jobs(client, MOST, JobQuery(everything=True))
        rows = [logged(job.model_dump(mode="json")) for job in jobs]
        rows += [
            logged_import(imported_job.to_domain())
            for imported_job in _fetch_imported_jobs(client)
        ]
        node_gpu_counts = [
            node.gpus.total for node in client.nodes() if node.gpus.total
        ]
    trace = trace_of(OWN, rows)
    if nodes is not None or cluster is not None or not node_gpu_counts:
        return trace, _load_replay_nodes(None, nodes, cluster)
    return trace, (node_gpu_counts, {})


def _fetch_imported_jobs(client: "Client") -> "list[ImportedJob]":
    from corral.wire.imports import MOST_ROWS

    imported_jobs: list[ImportedJob] = []
    while page := client.imports(
        limit=MOST_ROWS, before=imported_jobs[-1].id if imported_jobs else None
    ):
        imported_jobs += page
    return imported_jobs


def _load_replay_nodes(
    trace: Path | None, nodes: Path | None, cluster: str | None
) -> Nodes:
    from corral.traces.traces import read_nodes, sizes_of

    if cluster is not None and nodes is not None:
        raise Usage(
            "--nodes and --cluster cannot be combined",
            hint="leave out --nodes or --cluster",
        )
    if cluster is not None:
        return sizes_of(cluster), {}
    beside = _default_nodes_path(trace) if trace is not None else None
    if nodes is None and (beside is None or not beside.exists()):
        raise Usage(
            "the nodes of the simulated cluster are missing",
            hint="add --nodes FILE or, for 88 nodes with 8 GPUs each: --cluster 88x8",
        )
    node_groups = read_nodes(nodes or beside or Path())
    own_groups: dict[str, int] = {}
    for gpus, vc in node_groups:
        own_groups[vc] = own_groups.get(vc, 0) + gpus
    return [gpus for gpus, _ in node_groups], {
        vc: gpus for vc, gpus in own_groups.items() if vc
    }


def _default_nodes_path(trace: Path) -> Path:
    return trace.with_name(
        trace.name.removesuffix(".gz").removesuffix(".csv") + ".nodes.csv"
    )
