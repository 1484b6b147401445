"""`corral up --hosts`: installation on other machines over ssh, and the outcome for
each machine."""

import os
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from corral.cli.head_options import Common
from corral.cli.printing import cut, say, show_table, state, table
from corral.cli.up_options import SshOptions
from corral.domain.node_policy import ROOT

if TYPE_CHECKING:
    from corral.boot.ssh_hosts import HostOutcome, SshHost


def read(others: SshOptions, host: str | None) -> "list[SshHost]":
    """Read the hosts of the file; return no hosts without a file.

    Raises: SpecInvalid for an invalid file, or if the hosts could not reach the head.
    """
    from corral.boot.settings import is_loopback
    from corral.boot.ssh_hosts import read_targets
    from corral.domain.errors import SpecInvalid

    if others.hosts is None:
        return []
    if host is None or is_loopback(host):
        raise SpecInvalid(
            "--hosts requires an address that other machines can reach, but the head "
            "would serve only on the loopback address",
            hint="run with an address of this machine: "
            f"corral up --host ADDRESS --hosts {others.hosts}",
        )
    try:
        targets = read_targets(others.hosts.read_text(), str(others.hosts))
        return [_with_policy(target, others) for target in targets]
    except (OSError, ValueError) as error:
        raise SpecInvalid(
            f"the file of --hosts, {others.hosts}, cannot be read: {error}",
            hint=f"run: ls -ld {others.hosts}",
        ) from None


def _with_policy(target: "SshHost", others: SshOptions) -> "SshHost":
    """Return the target with --policy root=allow, so that the machine also runs jobs of
    root. This is done only if root runs the command and logs in as root. A target with
    its own --policy is unchanged."""
    by_root = os.geteuid() == 0 and (target.user or others.ssh_user or ROOT) == ROOT
    if not by_root or "--policy" in target.words:
        return target
    return replace(target, words=(*target.words, "--policy", "root=allow"))


def bring(
    common: Common, others: SshOptions, targets: "list[SshHost]"
) -> "list[HostOutcome]":
    """Let all hosts join the running cluster, and return their outcomes.

    Raises: Unsupported.
    """
    from corral.boot.extras import needed_to_join
    from corral.boot.own_wheel import own_wheel
    from corral.boot.settings import ClusterSettings
    from corral.boot.ssh_hosts import Invitation, SshAccess, bring_up_hosts

    with common.client() as client:
        join_token = client.create_join_token(uses=len(targets), expires_seconds=3600.0)
    invitation = Invitation(
        url=join_token.url, fingerprint=join_token.fingerprint, token=join_token.token
    )
    settings = ClusterSettings.load(common.place) or ClusterSettings()
    ssh_access = SshAccess(
        user=others.ssh_user,
        key=others.ssh_key,
        python=others.python,
        extra_packages=needed_to_join(settings),
    )
    with tempfile.TemporaryDirectory(prefix="corral-wheel-") as folder:
        wheel = own_wheel(Path(folder)) if ssh_access.python is None else None
        host_outcomes = bring_up_hosts(targets, ssh_access, invitation, wheel)
    with common.client() as client:
        client.revoke_token(join_token.id)  # its remaining uses are no longer valid
    return host_outcomes


def show(found: "list[HostOutcome]") -> None:
    rows = table("HOST", "NODE", "STATE", "NOTE")
    for host_outcome in found:
        rows.add_row(
            str(host_outcome.target),
            host_outcome.node,
            state("failed" if host_outcome.trouble else "joined"),
            cut(
                f"{host_outcome.trouble}; {host_outcome.hint}"
                if host_outcome.trouble
                else ""
            ),
        )
    say()
    show_table(rows)


def as_json(found: "list[HostOutcome]") -> list[dict[str, Any]]:
    return [
        {
            "host": str(host_outcome.target),
            "node": host_outcome.node or None,
            "trouble": host_outcome.trouble or None,
            "hint": host_outcome.hint or None,
        }
        for host_outcome in found
    ]


def check(found: "list[HostOutcome]") -> None:
    """Check that all hosts have joined.

    Raises: StartFailed if some have not.
    """
    from corral.boot.start_head import StartFailed

    failed = [host_outcome for host_outcome in found if host_outcome.trouble]
    if failed:
        raise StartFailed(
            f"{len(failed)} of {len(found)} hosts have not joined: "
            + "; ".join(
                f"{host_outcome.target}: {host_outcome.trouble}"
                for host_outcome in failed
            ),
            hint=f"{failed[0].hint}; then run the same command again (hosts that have "
            "joined are kept)",
        )
