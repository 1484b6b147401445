"""The commands up, down and status."""

from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from corral import __version__
from corral.cli.embedded_head import (
    end_head,
    say_what_is_pretended,
    say_who_is_kept_out,
)
from corral.cli.head_options import Change, Common, declined
from corral.cli.joining import down as end_joined
from corral.cli.joining import show_line
from corral.cli.lost_work import WAITING, agreed_to_lose
from corral.cli.nodes import show_nodes
from corral.cli.printing import note, print_json, say, show_pairs
from corral.cli.setting_options import requested_settings
from corral.cli.unfinished_work import UnfinishedWork
from corral.cli.up_options import SettingOptions, SshOptions

if TYPE_CHECKING:
    from corral.boot.bring_up import Start
    from corral.boot.cluster_options import ClusterOptions
    from corral.boot.settings import ClusterDir
    from corral.boot.ssh_hosts import HostOutcome
    from corral.wire import api

_Flag = Annotated[bool, Parameter(negative="", show_default=False)]
AWAY_SECONDS = 5.0  # that a head says nothing which says each second that it lives


def up(
    *,
    settings: SettingOptions = SettingOptions(),  # noqa: B008 - frozen
    restart: _Flag = False,
    others: SshOptions = SshOptions(),  # noqa: B008 - frozen
    common: Change = Change(),  # noqa: B008 - frozen
) -> None:
    """Start a cluster on this machine. If it is up already, nothing changes.

    Args:
        restart: Restart the head if it runs, for example after an upgrade; jobs
            continue. Without it, a running head is left as it is.
    """
    from corral.boot.bring_up import host_of
    from corral.cli import ssh_hosts as hosts

    check_ours(common, "up")
    cluster_options = requested_settings(settings)
    targets = hosts.read(others, host_of(common.place, cluster_options))
    start, status_now = _start_cluster(common, cluster_options, restart=restart)
    if common.json and not targets:
        print_json(status_now)
    elif not targets:
        _tell_up(common, status_now, fresh=start.is_new)
    else:
        _bring_others(common, status_now, hosts.bring(common, others, targets))


def _start_cluster(
    common: Common, asked: "ClusterOptions", *, restart: bool
) -> "tuple[Start, api.Status]":
    """Start the head and return its start and the cluster's status. With `restart`,
    replace a running head; its jobs continue. If the cluster cannot be started with the
    requested settings, it is started again with its old ones.

    Raises: Conflict when the running head does not end; SpecInvalid; StartFailed.
    """
    from corral.boot.bring_up import bring_up
    from corral.boot.cluster_options import ClusterOptions
    from corral.boot.start_head import head_runs
    from corral.domain.errors import Conflict, SpecInvalid

    is_replaced = restart and head_runs(common.place)
    if is_replaced:
        with common.client() as client:
            end_head(common.place, client, UnfinishedWork.of(client), jobs="leave")
    try:
        start = bring_up(common.place, asked)
    except (Conflict, SpecInvalid):
        if is_replaced:
            bring_up(common.place, ClusterOptions())
        raise
    return start, _up_with_nodes(common, start)


def _up_with_nodes(common: Common, start: "Start") -> "api.Status":
    """Wait for the nodes of a started cluster, and return its status. Raises:
    StartFailed when no node joins."""
    from corral.boot.bring_up import wait_for_nodes

    with common.client() as client:
        if start.continues:
            work = UnfinishedWork.of(client)
            note(
                f"the cluster in {common.place.root} continues with {work.counts_text}"
            )
        if start.lost_port is not None:
            note(
                f"port {start.lost_port}, on which clients expect this head, is in "
                "use by another program; the head uses another port. When the port is "
                f"free, run: corral down --leave; corral up --port {start.lost_port}"
            )
        return wait_for_nodes(
            common.place, client.status, since_bytes=start.since_bytes, tell=note
        )


def _bring_others(
    common: Common, up: "api.Status", outcomes: "list[HostOutcome]"
) -> None:
    """Print the cluster's status, and the result for each machine on which a node was
    started over ssh. Raises: StartFailed when not all of them have joined."""
    from corral.cli import ssh_hosts as hosts

    with common.client() as client:
        status_now = client.status()
    if common.json:
        print_json(
            {**status_now.model_dump(mode="json"), "hosts": hosts.as_json(outcomes)}
        )
    else:
        say_pages(_say_head(common, up, "up"))
        show_nodes(status_now.nodes)
        hosts.show(outcomes)
    hosts.check(outcomes)


def _tell_up(common: Common, found: "api.Status", *, fresh: bool) -> None:
    url = _say_head(common, found, "up" if fresh else "already up")
    if found.head.version != __version__:
        note(
            f"the head still runs version {found.head.version}, and this command is "
            f"version {__version__}; to restart the head while its jobs continue, "
            "run: corral up --restart"
        )
    say_pages(url)
    say_prometheus(common.place)
    show_nodes(found.nodes)
    say_what_is_pretended(common.place)
    with common.client() as client:
        say_who_is_kept_out(common, client)
    # its nodes come by the cluster, and none joins
    if found.cluster.engine == "kubernetes":
        say_who_cannot_reach(common, found.head.url)
    else:
        say_how_to_join(common, found.head.url, fresh=fresh)


def _say_head(common: Common, found: "api.Status", what: str) -> str:
    """Print `what`, for example "up", and the address of this directory's head, even if
    another head leads and answers.

    Returns: the address.
    """
    from corral.boot.start_head import announced

    url, pid = announced(common.place) or (found.head.url, found.head.pid)
    say(f"{what}: {url} (process {pid})")
    if url != found.head.url:
        note(f"this head is a standby; the leader is the head at {found.head.url}")
    return url


def say_who_cannot_reach(common: Common, url: str) -> None:
    """Print a note if only this machine can reach the head: pods have addresses of
    their own and most likely cannot."""
    from urllib.parse import urlsplit

    from corral.boot.settings import ClusterSettings, is_loopback

    settings = ClusterSettings.load(common.place)
    has_head_url = settings is not None and "head_url" in settings.engine_settings
    if is_loopback(urlsplit(url).hostname or "") and not has_head_url:
        note(
            f"only this machine can reach the head at {url}, and pods probably "
            "cannot; serve on an address that pods can reach: corral down --leave; "
            "corral up --host ADDRESS, or corral up --set head_url=URL"
        )


def say_pages(url: str) -> None:
    say(f"web pages: {url}/; to print a link that logs a browser in, run: corral ui")


def say_prometheus(place: "ClusterDir") -> None:
    """Print the address of Prometheus, if --monitoring started one."""
    from corral.boot.monitoring import USER, prometheus_of
    from corral.boot.settings import ClusterSettings

    settings = ClusterSettings.load(place)
    prometheus = prometheus_of(place, settings) if settings is not None else None
    if prometheus is not None:
        say(
            f"Prometheus: {prometheus.url} on this machine; dashboards for Grafana: "
            "deploy/README.md"
        )
        say(
            f"log in to Prometheus as {USER}, with the password in "
            f"{prometheus.password_file}"
        )


def say_how_to_join(common: Common, url: str, *, fresh: bool) -> None:
    """Print the command with which other machines join, if they can reach the head.
    Because the command holds a secret, it is printed only for a new cluster (`fresh`);
    for others, a note says how to get it."""
    if not url.startswith("https"):
        return
    if not fresh:
        note("to let another machine join, run: corral node token")
        return
    with common.client() as client:
        join_token = client.create_join_token()
    say()
    say("To join another machine, install Corral there and run:")
    show_line(join_token)


def check_ours(common: Common, verb: str) -> None:
    """Check that a command such as `down` (`verb`) applies to the head of the
    directory. Raises: Conflict if CORRAL_URL names a head, which may be another one."""
    from corral.domain.errors import Conflict

    if common.remote:
        raise Conflict(
            f"corral {verb} applies to a cluster directory on this machine, but "
            "CORRAL_URL is set, and its head may belong to another cluster",
            hint=f"run: corral {verb} --dir {common.place.root}",
        )


def down(
    *,
    jobs: Annotated[Literal["leave", "stop"], Parameter(name="--jobs")] = "stop",
    leave: _Flag = False,
    common: Change = Change(),  # noqa: B008 - frozen
) -> None:
    """Stop the head and its agents.

    Args:
        jobs: What to do with services and unfinished jobs: stop ends them; leave lets
            them continue, and the next `corral up` finds them again.
        leave: The same as --jobs leave.
    """
    from corral.boot.gateway_process import end_gateway
    from corral.boot.start_head import head_runs, node_processes, start_head

    check_ours(common, "down")
    cluster_dir = common.place
    if end_joined(common, leave_jobs=leave or jobs == "leave"):
        return
    request: Literal["leave", "stop"] = "leave" if leave else jobs
    if not head_runs(cluster_dir):
        if not node_processes(cluster_dir):
            end_gateway(cluster_dir)
            none = UnfinishedWork(jobs=())
            _tell_down(common, none, f"no head or agent runs in {cluster_dir.root}")
            return
        # only a head knows what its nodes hold, and ends them in order
        start_head(cluster_dir)
    with common.client() as client:
        work = UnfinishedWork.of(client)
        if work and request == "stop":
            for line in work.lines():
                say(line, stderr=True)
            stops = [job.id for job in work.jobs_of_users if job.state not in WAITING]
            if not agreed_to_lose(client, stops, work.question, common):
                raise declined(
                    "nothing was stopped",
                    hint="to let them continue, run: corral down --leave",
                )
        end_head(cluster_dir, client, work, jobs=request)
    left_text = f"; {work.continues_text}" if work and request == "leave" else ""
    _tell_down(common, work, f"down{left_text}")


def _tell_down(common: Common, work: UnfinishedWork, text: str) -> None:
    if common.json:
        services = [service.name for service in work.services]
        jobs = [job.id for job in work.jobs]
        print_json({"down": True, "jobs": jobs, "services": services})
    else:
        say(text)


def status(*, common: Common = Common()) -> None:  # noqa: B008 - frozen
    """Show the head, the nodes and the resources of the nodes."""
    with common.client() as client:
        status_now = client.status()
    if common.json:
        print_json(status_now)
        return
    gpus = f"{status_now.gpus.free:g} of {status_now.gpus.total} free"
    if status_now.gpus.taken:
        gpus += f", {status_now.gpus.taken} used by programs outside Corral"
    if status_now.gpus.pretend:
        gpus += " (pretend)" if status_now.gpus.pretend == status_now.gpus.total else ""
        if status_now.gpus.pretend < status_now.gpus.total:
            gpus += f", {status_now.gpus.pretend} of them pretend"
    if status_now.gpus.away:
        gpus += f", {status_now.gpus.away} unavailable now"
    counts = ", ".join(
        f"{count} {name}" for name, count in sorted(status_now.jobs.items())
    )
    about = f"process {status_now.head.pid}, version {status_now.head.version}"
    directory_text = "" if common.remote else str(common.place.root)
    # of several, the one that leads lies elsewhere perhaps
    if directory_text and not status_now.heads:
        about += f", in {directory_text}"
    show_pairs(
        [
            ("head", f"{status_now.head.url} ({about})"),
            *[("heads", heads_text(status_now.heads)), ("directory", directory_text)]
            * bool(status_now.heads),
            ("GPUs", gpus),
            ("jobs", counts or "none unfinished"),
            *gateway_row(status_now.gateway),
            *[
                ("users", separation_text(user_isolation_view))
                for user_isolation_view in status_now.separation
            ],
        ]
    )
    show_nodes(status_now.nodes)
    for warning in status_now.warnings:
        note(f"warning: {warning.text}")


def separation_text(separation: "api.UserIsolationView") -> str:
    """Return how users are separated on some nodes, for example: n1, n2: each user's
    ranks run as an account of the user; ..."""
    from corral.domain.user_isolation import names_text

    return f"{names_text(separation.nodes)}: {separation.text}"


def gateway_row(gateway: "api.GatewayView | None") -> list[tuple[str, str]]:
    """Return the row with the address of the gateway for OpenAI clients; none while no
    gateway runs."""
    return [] if gateway is None else [("gateway", f"{gateway.url}/v1")]


def heads_text(heads: "list[api.OneHead]") -> str:
    """Return the state of each head, for example: a leads, b stands by."""
    head_words = []
    for head in heads:
        away = head.silent_seconds > AWAY_SECONDS
        standby_text = (
            f"silent for {head.silent_seconds:.0f} s" if away else "stands by"
        )
        head_words.append(f"{head.name} {'leads' if head.leads else standby_text}")
    return ", ".join(head_words)
