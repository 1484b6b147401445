"""The commands join and leave, and node token, node rm and node dead."""

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from corral.boot.declared_settings import SETTINGS
from corral.cli.error_output import Usage
from corral.cli.head_options import Change, Common, declined
from corral.cli.lost_work import agreed_to_lose, jobs_on
from corral.cli.nodes import show_nodes
from corral.cli.option_types import (
    Address,
    Fingerprint,
    Minutes,
    NameText,
    TokenText,
    WholeNumber,
)
from corral.cli.printing import clock_text, note, print_json, say
from corral.cli.setting_options import requested_settings, with_options
from corral.domain.units import counted

if TYPE_CHECKING:
    from corral.boot.join import Joined
    from corral.wire import api, joining

_Flag = Annotated[bool, Parameter(negative="", show_default=False)]
MOST_USES = 1_000
MOST_MINUTES = 7 * 24 * 60


@with_options(
    [
        replace(
            SETTINGS["gpus"],
            help="Number of GPUs that the node offers; pretend GPUs if it has none",
            default_text="all its GPUs",
        ),
        SETTINGS["gpu_type"],
        SETTINGS["pretend"],
        replace(SETTINGS["labels"], help="Label of the node, for example zone=a"),
        SETTINGS["shared"],
        SETTINGS["policy"],
    ]
)
class Offer:
    """Resources that a joining machine offers to the cluster."""


def join(
    url: str | None = None,
    /,
    *,
    token: TokenText | None = None,
    fingerprint: Fingerprint = "",
    name: NameText | None = None,
    address: Address = "",
    foreground: _Flag = False,
    offer: Offer = Offer(),  # noqa: B008 - frozen
    common: Change = Change(),  # noqa: B008 - frozen
) -> None:
    """Join this machine to a cluster as a node. Repeating the command is harmless.

    Args:
        url: Address of the head, from the command that `corral node token` prints.
            Without it, a node that has joined before is started again.
        token: Join token from that command (default: the variable CORRAL_JOIN_TOKEN).
        fingerprint: Fingerprint of the head's certificate, from that command. Without
            it, this machine must already trust the certificate.
        name: Name of the node (default: the machine's host name).
        address: Address at which other nodes reach this node (default: the address
            from which it reaches the head).
        foreground: Keep the agent in the foreground, for a service manager; otherwise
            it runs in the background.
    """
    from corral.boot.bring_up import real_gpu_count
    from corral.boot.join import JoinRequest, start_agent, wait_for_heartbeat, words_of
    from corral.boot.join import join as begin

    token = token or os.environ.get("CORRAL_JOIN_TOKEN")
    if url is None:
        joined = _load_joined_cluster(common)
        if joined is None:
            missing = "URL is" if token else "URL and --token are"
            raise Usage(
                f"{missing} missing: {common.place.root} contains no node to restart",
                hint="on the head's machine, run: corral node token; then run the "
                "printed command here: corral join URL --token TOKEN",
            )
    elif token is None:
        raise Usage(
            "--token is missing: joining a cluster requires a join token",
            hint=f"on the head: corral node token; here: corral join {url} --token TOKEN",
        )
    else:
        join_request = JoinRequest(
            url=url,
            token=token,
            fingerprint=fingerprint,
            name=name,
            address=address,
            machine=requested_settings(offer),
        )
        joined = begin(common.place, join_request, real_gpu_count)
    if foreground:
        agent_command = words_of(joined)
        os.execv(agent_command[0], agent_command)
    start_agent(joined)
    _show_joined(common, joined, wait_for_heartbeat(joined))


def _show_joined(common: Common, joined: "Joined", found: "api.NodeDetail") -> None:
    if common.json:
        print_json(found)
        return
    say(
        f"node {found.id} has joined {joined.url}; other nodes reach it at "
        f"{found.address}"
    )
    show_nodes([found])


def _load_joined_cluster(common: Common) -> "Joined | None":
    """Return the cluster that this machine has joined; None if it has joined none."""
    from corral.boot.join import Joined

    return Joined.load(common.place)


def leave(*, force: _Flag = False, common: Change = Change()) -> None:  # noqa: B008 - frozen
    """Remove this machine from its cluster: its agent ends, and its token is revoked.

    Args:
        force: Leave even if jobs run on this machine or the head does not respond; the
            jobs lose the work since their last checkpoint.
    """
    from corral.boot.join import leave as go
    from corral.domain.errors import Conflict

    joined = _load_joined_cluster(common)
    if joined is None:
        raise Conflict(
            f"this machine has not joined a cluster: {common.place.root} contains no "
            "node",
            hint="if it joined from another directory, run: corral leave --dir DIR",
        )
    if not common.agreed(
        f"remove this machine from the cluster at {joined.url}?", destroys=True
    ):
        raise declined()
    go(joined, force=force)
    if common.json:
        print_json({"node": joined.node, "left": True})
    else:
        say(f"node {joined.node} has left {joined.url}")


def down(common: Common, *, leave_jobs: bool) -> bool:
    """Run `corral down` on a machine that has joined a cluster; return False if it has
    not.

    Raises: Conflict while jobs run on this machine, unless `leave_jobs` is set.
    """
    from corral.boot.join import stop_agent
    from corral.domain.errors import Conflict

    joined = _load_joined_cluster(common)
    if joined is None:
        return False
    running = len(joined.shims())
    if running and not leave_jobs:
        raise Conflict(
            f"the agent was not stopped: node {joined.node} runs "
            f"{counted(running, 'job')} of {joined.url}",
            hint=f"move the jobs first: corral node drain {joined.node}; or let them "
            "run on without the agent: corral down --leave",
        )
    if not stop_agent(joined):
        raise Conflict(
            f"the agent of node {joined.node} did not stop in time",
            hint=f"read the log of the agent: {joined.dir / 'agent.log'}",
        )
    if common.json:
        print_json({"down": True, "node": joined.node})
    else:
        say(f"node {joined.node} is down; to start its agent again, run: corral join")
    return True


def create_token(
    *,
    uses: Annotated[WholeNumber, Parameter(validator=Number(gte=1, lte=MOST_USES))] = 1,
    minutes: Annotated[
        Minutes, Parameter(validator=Number(gt=0, lte=MOST_MINUTES))
    ] = 15.0,
    common: Change = Change(),  # noqa: B008 - frozen
) -> None:
    """Print the command with which a machine joins. It is printed only once, because
    the cluster stores only a hash of its token.

    Args:
        uses: Number of machines that may join with the token.
        minutes: Minutes until the token expires; machines that have joined by then
            stay.
    """
    from urllib.parse import urlsplit

    from corral.boot.settings import is_loopback

    with common.client() as client:
        join_token = client.create_join_token(uses=uses, expires_seconds=minutes * 60.0)
    if common.json:
        print_json({**join_token.model_dump(mode="json"), "line": join_token.line})
        return
    show_line(join_token)
    if is_loopback(urlsplit(join_token.url).hostname or ""):
        note(
            f"warning: only this machine can reach the head at {join_token.url}; to "
            "let other machines join, restart the head on another address (this "
            "cancels its jobs): corral down; corral up --host ADDRESS"
        )


def show_line(made: "joining.JoinTokenMade") -> None:
    say(made.line)
    often = "one machine" if made.uses == 1 else f"{made.uses} machines"
    note(
        f"valid for {often} until {clock_text(made.expires_at)}; the token's id: "
        f"{made.id}"
    )


def rm(node: str, /, *, force: _Flag = False, common: Change = Change()) -> None:  # noqa: B008
    """Remove a node that has joined, and revoke its token.

    Args:
        node: Name of the node.
        force: Remove the node even if jobs run on it; they lose the work since their
            last checkpoint, and start again on other nodes. Without it, such a node is
            not removed.
    """
    with common.client() as client:
        jobs = jobs_on(client, [node]) if common.asks_before_loss else ()
        if not agreed_to_lose(client, jobs, f"remove the node {node}?", common):
            raise declined()
        client.remove_node(node, force=force)
    if common.json:
        print_json({"node": node})
    else:
        say(f"{node} is removed")


def dead(node: str, /, *, common: Change = Change()) -> None:  # noqa: B008 - frozen
    """Declare a silent node dead, so that its jobs start on other nodes.

    Use it only if the machine is off or was restarted: otherwise jobs that still run on
    it would run twice.

    Args:
        node: Name of the node.
    """
    with common.client() as client:
        jobs = jobs_on(client, [node]) if common.asks_before_loss else ()
        question = f"is the machine of {node} off, or was it restarted?"
        if not agreed_to_lose(client, jobs, question, common):
            raise declined()
        node_detail = client.declare_dead(node)
    if common.json:
        print_json(node_detail)
    else:
        say(f"{node_detail.id}: {node_detail.liveness}, {node_detail.why}")
