"""Start of this machine's head when a command needs one, and its orderly end."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Literal

from corral.cli.printing import note
from corral.cli.unfinished_work import UnfinishedWork, awaited_text

if TYPE_CHECKING:
    from corral.boot.settings import ClusterDir
    from corral.cli.head_options import Change, Common
    from corral.client import Client
    from corral.wire import api

GONE_SECONDS: Final = 60.0
QUIET_SECONDS: Final = 3.0  # after which a wait is explained
JOBS_SECONDS: Final = 135.0  # the head gives them 120


@contextmanager
def head_for(common: "Change") -> Iterator[None]:
    """Start a head here if none runs, and run the body of the `with` statement. If the
    command is then refused or interrupted, end the head that was started; jobs that an
    earlier head had left continue."""
    from corral.domain.errors import Refusal

    left_jobs = _start_head_if_absent(common)
    try:
        yield
    except (Refusal, KeyboardInterrupt):
        if left_jobs is not None:
            _end_again(common, left_jobs)
        raise


def _start_head_if_absent(common: "Change") -> frozenset[str] | None:
    """Start a head if none runs. Returns: the ids of the unfinished jobs that the new
    head found in its store; None if no head was started, because one runs already or
    the head is on another machine."""
    from corral.boot.start_head import head_runs

    if common.remote or head_runs(common.place):
        return None
    from corral.boot.bring_up import bring_up, wait_for_nodes
    from corral.boot.cluster_options import ClusterOptions

    note(f"no head runs in {common.place.root}: starting a head on this machine")
    start = bring_up(common.place, ClusterOptions())
    with common.client() as client:
        left_jobs = frozenset(job.id for job in unfinished(client))
        wait_for_nodes(
            common.place, client.status, since_bytes=start.since_bytes, tell=note
        )
    say_what_is_pretended(common.place)
    return left_jobs if start.is_new else None


def say_what_is_pretended(place: "ClusterDir") -> None:
    from corral.boot.settings import ClusterSettings

    settings = ClusterSettings.load(place)
    if settings is not None and settings.pretend:
        note("the GPUs are pretend GPUs: jobs run on the CPU")
    elif settings is not None and settings.gpus == 0:
        note("the nodes of this machine have no GPUs: jobs run on the CPU")


def say_who_is_kept_out(common: "Common", client: "Client") -> None:
    """Print which users' ranks cannot reach the directory, if the cluster is on this
    machine."""
    from corral.boot.declared_settings import LOCAL
    from corral.boot.directory_access import kept_out
    from corral.boot.settings import ClusterSettings

    if common.remote:
        return
    settings = ClusterSettings.load(common.place)
    engine = settings.engine if settings else LOCAL
    if warning_text := kept_out(common.place.root, engine, client.users()):
        note(f"warning: {warning_text}")


def _end_again(common: "Change", left: frozenset[str]) -> None:
    """End the head that this command started, unless it has received jobs other than
    `left` since."""
    with common.client() as client:
        work = UnfinishedWork.of(client)
        if all(job.id in left for job in work.jobs):
            end_head(common.place, client, work, jobs="leave")


def unfinished(client: "Client") -> "list[api.JobView]":
    return client.jobs(limit=10_000)


def end_head(
    place: "ClusterDir",
    client: "Client",
    work: UnfinishedWork,
    *,
    jobs: Literal["leave", "stop"],
) -> None:
    """End the head. `jobs`: whether the unfinished work is stopped too, or left to
    continue. Raises: Conflict when the head does not end."""
    from corral.boot.settings import read_json
    from corral.boot.start_head import head_runs, node_processes, until
    from corral.domain.errors import Conflict
    from corral.engines.local.processes import LocalProcess

    head = LocalProcess.find(int((read_json(place.head_json) or {"pid": 0})["pid"]))
    head_seconds = JOBS_SECONDS if work else GONE_SECONDS
    awaited = awaited_text(work, client.nodes(), head_seconds) if jobs == "stop" else ""
    client.down(jobs=jobs)

    def is_gone() -> bool:
        return not head_runs(place) and not (head and head.lives)

    has_ended = until(is_gone, QUIET_SECONDS)
    if not has_ended:
        if awaited:
            note(awaited)
        has_ended = until(is_gone, head_seconds - QUIET_SECONDS)
    if has_ended and not (work and jobs == "leave"):
        has_ended = until(lambda: not node_processes(place), GONE_SECONDS)
    if not has_ended:
        node_pids = [process.pid for process in node_processes(place)]
        head_pid = head.pid if head and head.lives else None
        raise Conflict(
            late_text(node_pids, head_pid, head_runs=not is_gone()),
            hint=f"read the log of the head: {place.head_log}",
        )


def late_text(
    node_pids: Sequence[int], head_pid: int | None, *, head_runs: bool
) -> str:
    """Return which processes of a cluster did not end in time. `node_pids`: those of
    its nodes; `head_pid`: None if it is not known."""
    what = "the cluster did not stop in time"
    if head_runs:
        process = f" (process {head_pid})" if head_pid is not None else ""
        return f"{what}: its head{process} still runs"
    if node_pids:
        pids = ", ".join(str(pid) for pid in node_pids)
        return f"{what}: processes of its nodes still run: {pids}"
    return f"{what}, but all of its processes have ended now"
