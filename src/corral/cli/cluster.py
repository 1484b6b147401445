"""up, down, status."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from corral.cli.common import Change, Common
from corral.cli.output import (
    cut,
    note,
    print_json,
    say,
    show_pairs,
    show_table,
    state,
    table,
)

if TYPE_CHECKING:
    from corral.boot.settings import ClusterDir
    from corral.wire import api

GONE_SECONDS = 60.0
JOBS_SECONDS = 135.0  # the head gives them 120


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """What the nodes are labelled with, and how their GPUs are cut."""

    gpu_slices: Annotated[
        int | None,
        Parameter(name="--gpu-slices", help="Cut each pretend GPU into so many parts, like MIG."),
    ] = None
    label: Annotated[
        tuple[str, ...],
        Parameter(
            negative="",
            show_default=False,
            help="A label of all nodes, zone=a, or of one, n2:zone=a; may be repeated.",
        ),
    ] = ()
    topology: Annotated[
        str | None,
        Parameter(help="Where nodes lie, in equal parts: racks=2, or racks=4,pods=2,nvlink=8."),
    ] = None

    @property
    def given(self) -> dict[str, Any]:
        """As boot's Asked has them."""
        return {
            "gpu_slices": self.gpu_slices,
            "labels": self.label or None,
            "topology": self.topology,
        }


def up(
    *,
    nodes: Annotated[int | None, Parameter(name="--nodes")] = None,
    gpus: Annotated[int | None, Parameter(name="--gpus")] = None,
    gpu_type: Annotated[str | None, Parameter(name="--gpu-type")] = None,
    pretend: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    gpu_shares: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    shared: Annotated[tuple[Path, ...], Parameter(negative="", show_default=False)] = (),
    reboot: float | None = None,
    keep_days: float | None = None,
    keep_jobs: int | None = None,
    host: Annotated[str | None, Parameter(name="--host")] = None,
    tls_certificate: Annotated[Path | None, Parameter(name="--tls-certificate")] = None,
    tls_key: Annotated[Path | None, Parameter(name="--tls-key")] = None,
    layout: Layout = Layout(),  # noqa: B008 - frozen
    common: Change = Change(),  # noqa: B008 - frozen
) -> None:
    """Start a cluster on this machine. Again is harmless.

    Args:
        nodes: How many nodes to make of this machine (1).
        gpus: GPUs of each node (what this machine has; pretend ones where it has none).
        gpu_type: What pretend GPUs call themselves (h100).
        pretend: Pretend GPUs even where there are real ones.
        gpu_shares: Let jobs ask for a part of a GPU.
        shared: A directory that every node sees; may be repeated.
        reboot: Seconds until a node that died is started again (30).
        keep_days: Days for which a job is kept after its end (30).
        keep_jobs: At most so many jobs that are over are kept, the newest (50000).
        host: Address to serve on (127.0.0.1); another than loopback needs TLS.
        tls_certificate: Certificate file, for another host than loopback.
        tls_key: Its key file.
    """
    from corral.boot.up import Asked, bring_up, wait_for_nodes

    _check_ours(common, "up")
    asked = Asked(
        nodes=nodes,
        gpus=gpus,
        gpu_type=gpu_type,
        pretend=pretend or None,
        gpu_shares=gpu_shares or None,
        **layout.given,
        reboot_seconds=reboot,
        keep_days=keep_days,
        keep_jobs=keep_jobs,
        shared=tuple(str(path.absolute()) for path in shared) or None,
        host=host,
        tls_certificate=str(tls_certificate.absolute()) if tls_certificate else None,
        tls_key=str(tls_key.absolute()) if tls_key else None,
    )
    fresh = bring_up(common.place, asked)
    with common.client() as client:
        found = wait_for_nodes(common.place, client.status)
    if common.json:
        print_json(found)
        return
    say(f"{'up' if fresh else 'already up'}: {found.head.url} (process {found.head.pid})")
    show_nodes(found.nodes)
    say_what_is_pretended(common.place)


def _check_ours(common: Common, verb: str) -> None:
    """Raises: Conflict where CORRAL_URL names a head, which need not be that of the directory."""
    from corral.domain.errors import Conflict

    if common.remote:
        raise Conflict(
            f"CORRAL_URL names a head that this machine may know nothing of; {verb} is for the "
            f"cluster of a directory",
            hint=f"run: corral {verb} --dir {common.place.root}",
        )


def say_what_is_pretended(place: "ClusterDir") -> None:
    from corral.boot.settings import ClusterSettings

    settings = ClusterSettings.load(place)
    if settings is not None and settings.pretend:
        note("the GPUs are pretended: jobs run on the CPU")
    elif settings is not None and settings.gpus == 0:
        note("no GPU is used on this machine: CPU-only nodes")


def down(
    *,
    jobs: Annotated[Literal["leave", "stop"], Parameter(name="--jobs")] = "stop",
    leave: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    common: Change = Change(),  # noqa: B008 - frozen
) -> None:
    """Stop the head and its agents.

    Args:
        jobs: What becomes of unfinished jobs: stop cancels them, leave lets them run on.
        leave: The same as --jobs leave; the next `corral up` finds them again.
    """
    from corral.boot.settings import read_json
    from corral.boot.start import head_runs, node_processes, start_head, until
    from corral.domain.errors import Conflict
    from corral.engines.local.processes import Process

    _check_ours(common, "down")
    place = common.place
    wish: Literal["leave", "stop"] = "leave" if leave else jobs
    if not head_runs(place):
        if not node_processes(place):
            _tell_down(common, [], "there is nothing to stop")
            return
        start_head(place)  # only a head knows what its nodes hold, and ends them in order
    head = Process.find(int((read_json(place.head_json) or {"pid": 0})["pid"]))
    with common.client() as client:
        running = client.jobs(limit=10_000)
        if running and wish == "stop":
            say(_unfinished(running), stderr=True)
            if not common.agreed("stop them and the cluster?"):
                raise Conflict("nothing was stopped", hint="leave them: corral down --leave")
        client.down(jobs=wish)
    left = len(running) if wish == "leave" else 0
    head_seconds = JOBS_SECONDS if running else GONE_SECONDS
    ended = until(lambda: not head_runs(place) and not (head and head.lives), head_seconds)
    if ended and not left:
        ended = until(lambda: not node_processes(place), GONE_SECONDS)
    if not ended:
        pids = ", ".join(str(process.pid) for process in node_processes(place))
        raise Conflict(
            f"the cluster does not end: processes {pids or 'of the head'} are left",
            hint=f"look at {place.head_log}",
        )
    _tell_down(common, running, f"down; {left} jobs run on" if left else "down")


def _tell_down(common: Common, running: "list[api.Job]", text: str) -> None:
    if common.json:
        print_json({"down": True, "jobs": [job.id for job in running]})
    else:
        say(text)


def _unfinished(running: "list[api.Job]") -> str:
    named = ", ".join(f"{job.name} ({job.state})" for job in running[:5])
    more = f" and {len(running) - 5} more" if len(running) > 5 else ""
    return f"{len(running)} unfinished: {named}{more}"


def status(*, common: Common = Common()) -> None:  # noqa: B008 - frozen
    """Show the head, the nodes and what they hold."""
    with common.client() as client:
        found = client.status()
    if common.json:
        print_json(found)
        return
    gpus = f"{found.gpus.free:g} of {found.gpus.total} free"
    if found.gpus.away:
        gpus += f", {found.gpus.away} not to be had now"
    counts = ", ".join(f"{count} {name}" for name, count in sorted(found.jobs.items()))
    show_pairs(
        [
            ("head", f"{found.head.url} (process {found.head.pid}, version {found.head.version})"),
            ("GPUs", gpus),
            ("jobs", counts or "none unfinished"),
        ]
    )
    show_nodes(found.nodes)
    for warning in found.warnings:
        note(f"warning: {warning}")


def show_nodes(nodes: "list[api.Node]") -> None:
    labelled = any(node.labels for node in nodes)
    columns = ("NODE", "STATE", "GPUS", "FREE", "JOBS", *["LABELS"] * labelled, "NOTE")
    rows = table(*columns, right=("GPUS", "FREE"))
    for node in nodes:
        word = "draining" if node.draining else "cordoned" if node.cordoned else node.liveness
        types = "/".join(node.gpus.types)
        remark = node.why if node.liveness != "alive" else ""
        rows.add_row(
            node.id,
            state(word),
            f"{node.gpus.total} {types}".strip(),
            f"{node.gpus.free:g}",
            str(len(node.jobs)),
            *[labels_text(node.labels)] * labelled,
            cut(remark),
        )
    show_table(rows)


def labels_text(labels: Mapping[str, str]) -> str:
    return " ".join(f"{label}={value}" for label, value in sorted(labels.items()))
