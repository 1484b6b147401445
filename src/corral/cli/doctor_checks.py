"""The command doctor without a subcommand: examines this machine and the whole cluster,
and says what to do about each problem."""

import os
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from corral import __version__
from corral.cli.error_output import DONE, JOB_FAILED
from corral.cli.head_options import Common
from corral.cli.printing import clean, print_json, say, show_table, table
from corral.domain.cluster_warning import WarningCode
from corral.domain.errors import CorralError
from corral.domain.units import size_text

if TYPE_CHECKING:
    from corral.client import Client
    from corral.wire import alerts, api

FREE_SHARE: Final = 0.05  # of a disk: below it the alert of a full disk stands, too
MOST_NODES: Final = 32  # that are looked at one by one; unhealthy ones come first
KEPT_APART: Final = ("own_accounts", "pods")  # means by which users are
OF_NODES: Final = ("node_down", "node_kept_back")  # alerts shown with their node


class Is(StrEnum):
    WELL = "well"
    NOTE = "note"  # it works, and could do more
    WRONG = "wrong"


_STYLES: Final = {Is.WELL: "green", Is.NOTE: "yellow", Is.WRONG: "red"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One result of the examination. `to_do`: the command to type, or what a person has
    to do; "" if nothing is to be done."""

    where: str
    state: Is
    text: str
    to_do: str = ""


def look(*, common: Common = Common()) -> int:  # noqa: B008 - frozen
    """Examine this machine and the whole cluster, and say what to do. Nothing is
    changed.

    Exit code: 1 if something is wrong.
    """
    findings = [*of_machine(common)]
    try:
        with common.client() as client:
            findings += of_cluster(client)
    except CorralError as error:
        # a cluster that is down is down on purpose
        which = Is.WRONG if common.remote else Is.NOTE
        findings.append(
            Finding(where="head", state=which, text=error.message, to_do=error.hint)
        )
    wrong_count = sum(finding.state == Is.WRONG for finding in findings)
    if common.json:
        print_json(
            {
                "findings": [asdict(finding) for finding in findings],
                "wrong": wrong_count,
            }
        )
        return JOB_FAILED if wrong_count else DONE
    from rich.text import Text

    rows = table("WHERE", "IS", "WHAT")
    for finding in findings:
        to_do = f"\n-> {finding.to_do}" if finding.to_do else ""
        rows.add_row(
            finding.where,
            Text(finding.state, style=_STYLES[finding.state]),
            clean(finding.text + to_do),
        )
    show_table(rows)
    if wrong_count:
        say(f"{wrong_count} thing{'s are' if wrong_count > 1 else ' is'} wrong")
    else:
        say(
            "nothing is wrong; to test the nodes, run: corral doctor gpu, corral "
            "doctor net or corral doctor data PATH"
        )
    return JOB_FAILED if wrong_count else DONE


# -- this machine --------------------------------------------------------------------------------


def of_machine(common: Common) -> Iterator[Finding]:
    """Yield findings about a head or a node on this machine."""
    machine_label = "this machine"
    from corral.boot.bring_up import real_gpu_count

    gpus = real_gpu_count()
    no_gpu_text = (
        "no GPU found; corral up --gpus N makes pretend GPUs: jobs then run on the CPU"
    )
    gpu_text = f"{gpus} NVIDIA GPU{'s' * (gpus > 1)}" if gpus else no_gpu_text
    yield Finding(
        where=machine_label, state=Is.WELL if gpus else Is.NOTE, text=gpu_text
    )
    yield from _check_torch(machine_label, gpus)
    yield _containment(machine_label)
    if not common.remote:
        yield _directory(common)
        yield _check_web_pages(machine_label)


def _check_torch(where: str, gpus: int) -> Iterator[Finding]:
    from importlib.util import find_spec

    if find_spec("torch") is None:
        yield Finding(
            where=where,
            state=Is.WRONG if gpus else Is.NOTE,
            text="PyTorch is not installed with Corral: GPUs cannot be tested",
            to_do="run: pip install 'corral[train]'",
        )


def _containment(where: str) -> Finding:
    from corral.agent.containment import SUBREAPER, probe

    containment_check = probe()
    weakest = containment_check.kind == SUBREAPER
    how = f"the processes of a job are kept together by a {containment_check.kind}"
    reason_text = (
        f" ({containment_check.reason})" if containment_check.kind != "cgroup" else ""
    )
    advice = (
        "delegate a cgroup to this user, or enable user namespaces" if weakest else ""
    )
    return Finding(
        where=where,
        state=Is.NOTE if weakest else Is.WELL,
        text=how + reason_text,
        to_do=advice,
    )


def _directory(common: Common) -> Finding:
    root = common.place.root
    path = next(existing for existing in (root, *root.parents) if existing.exists())
    if not os.access(path, os.W_OK):
        return Finding(
            where=str(root),
            state=Is.WRONG,
            text=f"{path} is not writable",
            to_do="choose another directory with --dir or CORRAL_DIR",
        )
    disk = shutil.disk_usage(path)
    text = f"{size_text(disk.free)} of {size_text(disk.total)} free"
    if disk.free < FREE_SHARE * disk.total:
        return Finding(
            where=str(root), state=Is.WRONG, text=text, to_do="free space on this disk"
        )
    return Finding(where=str(root), state=Is.WELL, text=text)


def _check_web_pages(where: str) -> Finding:
    from corral.web.pages import FOLDER

    if (FOLDER / "index.html").is_file():
        return Finding(where=where, state=Is.WELL, text="the web pages are installed")
    return Finding(
        where=where,
        state=Is.NOTE,
        text="the web pages are not built",
        to_do="in a checkout, run: make ui; otherwise install Corral from a wheel",
    )


# -- the cluster ---------------------------------------------------------------------------------


def of_cluster(client: "Client") -> list[Finding]:
    """Return findings about the head that responds."""
    status, standing = client.status(), client.alerts()
    unhealthy = [node for node in status.nodes if is_unhealthy(node)]
    rest = [node for node in status.nodes if not is_unhealthy(node)]
    node_views = [*unhealthy, *rest][:MOST_NODES]
    details = [
        client.node(node_view.id)
        for node_view in node_views
        if node_view.liveness == "alive"
    ]
    return [
        *of_head(status, standing),
        *of_pretend_gpus(status.gpus),
        *of_nodes(status.nodes, details),
        *of_users(status.separation),
    ]


def of_pretend_gpus(gpus: "api.Gpus") -> Iterator[Finding]:
    """Yield a note if some or all GPUs of the cluster are pretended ones; jobs then run
    on the CPU."""
    if gpus.pretend:
        count = f"all {gpus.total}" if gpus.pretend == gpus.total else f"{gpus.pretend}"
        of = "" if gpus.pretend == gpus.total else f" of {gpus.total}"
        gpus_text = f"{count}{of} GPUs of the cluster are pretend ones"
        if gpus.total == 1:
            gpus_text = "the only GPU of the cluster is a pretend one"
        text = f"{gpus_text}: jobs run on the CPU"
        yield Finding(where="nodes", state=Is.NOTE, text=text)


def of_users(separation: "Iterable[api.UserIsolationView]") -> Iterator[Finding]:
    """Yield one finding for each group of nodes: which account runs the ranks, and
    whether users are separated from each other."""
    from corral.domain.user_isolation import names_text

    for user_isolation_view in separation:
        is_kept_apart = user_isolation_view.means in KEPT_APART
        yield Finding(
            where=names_text(user_isolation_view.nodes),
            state=Is.WELL if is_kept_apart else Is.NOTE,
            text=user_isolation_view.text,
            to_do="" if is_kept_apart else "read the section By engine of SECURITY.md",
        )


def of_head(status: "api.Status", standing: "alerts.Alerts") -> Iterator[Finding]:
    head, unhealthy_nodes = (
        status.head,
        {node.id for node in status.nodes if is_unhealthy(node)},
    )
    is_same_version = head.version == __version__
    yield Finding(
        where="head",
        state=Is.WELL if is_same_version else Is.NOTE,
        text=f"{head.url} answers, version {head.version}",
        to_do=""
        if is_same_version
        else f"install one version on both: this command line is {__version__}",
    )
    for warning in status.warnings:
        is_fault = warning.code == WarningCode.NODE_FAULT
        # findings of their own
        is_listed = warning.code == WarningCode.USERS_NOT_SEPARATED or (
            is_fault and warning.node in unhealthy_nodes
        )
        if not is_listed:
            yield Finding(where="head", state=Is.NOTE, text=warning.text)
    for alert in standing.alerts:
        if alert.kind not in OF_NODES:
            bad = Is.WRONG if alert.severity == "critical" else Is.NOTE
            yield Finding(where="alert", state=bad, text=alert.text, to_do=alert.next)
    if standing.trouble:
        yield Finding(where="alerts", state=Is.WRONG, text=standing.trouble)
    elif not standing.receivers:
        text = "no alert receiver is configured: failures are not reported to anyone"
        yield Finding(
            where="alerts", state=Is.NOTE, text=text, to_do="see: corral alert --help"
        )
    for receiver in standing.receivers:
        if receiver.trouble:
            text = f"the last alert was not delivered: {receiver.trouble}"
            to_do = "to send a test message, run: corral alert test"
            yield Finding(where="alerts", state=Is.WRONG, text=text, to_do=to_do)


def is_unhealthy(node: "api.NodeView") -> bool:
    return bool(
        node.health or node.suspect or node.cordoned or node.draining or node.closed
    ) or (node.liveness != "alive")


def of_nodes(
    nodes: "Iterable[api.NodeView]", details: "list[api.NodeDetail]"
) -> Iterator[Finding]:
    """Yield the problems of each node, and one common finding for all healthy nodes."""
    known_nodes = {detail.id: detail for detail in details}
    unproven, well = [], 0
    for node in nodes:
        findings = list(of_node(node, known_nodes.get(node.id)))
        yield from findings
        well += not findings
        if node.id in known_nodes and not known_nodes[node.id].checks:
            unproven.append(node.id)
    if well:
        is_single = well == 1
        text = (
            f"{well} node{' is' if is_single else 's are'} alive and "
            f"accept{'s' if is_single else ''} jobs"
        )
        yield Finding(where="nodes", state=Is.WELL, text=text)
    if unproven:
        names = ", ".join(unproven[:3]) + (" ..." if len(unproven) > 3 else "")
        text = f"never checked: {names}"
        to_do = "to check idle nodes, run: corral doctor gpu"
        yield Finding(where="nodes", state=Is.NOTE, text=text, to_do=to_do)


def of_node(node: "api.NodeView", detail: "api.NodeDetail | None") -> Iterator[Finding]:
    node_name, see = node.id, f"corral node show {node.id}"
    if node.liveness != "alive":
        to_do = (
            f"see: {see}; if the machine is off for good: corral node dead {node.id}"
        )
        yield Finding(
            where=node_name,
            state=Is.WRONG,
            text=f"{node.liveness}: {node.why}",
            to_do=to_do,
        )
        return
    conditions = (
        [condition for condition in detail.conditions if condition.mended_at is None]
        if detail
        else []
    )
    for condition in conditions:
        to_do = (
            condition.to_mend
            or f"{condition.remedy}; then: corral node clear {node.id}"
        )
        yield Finding(where=node_name, state=Is.WRONG, text=condition.text, to_do=to_do)
    if node.health and not conditions:
        yield Finding(
            where=node_name, state=Is.WRONG, text=node.health, to_do=f"see: {see}"
        )
    if node.closed:
        yield Finding(
            where=node_name, state=Is.NOTE, text=f"gets no new jobs: {node.closed}"
        )
    elif (node.cordoned or node.draining) and not node.cordoned_by:
        text = "drained" if node.draining else "cordoned"
        uncordon_advice = f"to allow new jobs again: corral node uncordon {node.id}"
        yield Finding(
            where=node_name,
            state=Is.NOTE,
            text=f"{text} by a person",
            to_do=uncordon_advice,
        )
    for check in (
        detail.checks if detail and not conditions else ()
    ):  # else in conditions
        if check.result == "failed" and check.kind != "data":
            recheck_advice = (
                f"after the repair, run: corral doctor gpu --node {node.id}"
            )
            yield Finding(
                where=node_name, state=Is.WRONG, text=check.text, to_do=recheck_advice
            )
