"""Following services until they are ready, and how to call them."""

import os
import shlex
import time as clock_time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from corral.boot.clock import SystemClock
from corral.cli.error_output import DONE, JOB_FAILED
from corral.cli.head_options import Common
from corral.cli.printing import clean, note, print_json, say, show_pairs
from corral.cli.service_text import base_url, model_of, replica_state
from corral.domain.units import counted

if TYPE_CHECKING:
    from corral.client import Client
    from corral.wire import service_answers as shapes

FOLLOW_POLL_SECONDS: Final = 0.5
REASON_SECONDS: Final = 10.0  # between two reasons of a replica in the same state


def follow_services(client: "Client", names: Sequence[str], common: Common) -> int:
    """Follow the services until each has a ready replica, or cannot get one. Print how
    to call them, and return the exit code. Ctrl-C ends only the output."""
    followed = []
    try:
        for name in names:
            followed.append(_follow(client, name))
    except KeyboardInterrupt:
        note(
            f"\n{names[0]} continues; to see its state, run: corral service show "
            f"{names[0]}"
        )
        raise
    if common.json:
        print_json(
            {"services": [service.model_dump(mode="json") for service in followed]}
        )
    failed = [service for service in followed if not _is_served(service)]
    for service in followed:
        if service not in failed and not common.json:
            say_how_to_call(service, common)
    for service in failed:
        note(_failure_text(service))
    return JOB_FAILED if failed else DONE


def _follow(client: "Client", name: str) -> "shapes.ServiceView":
    """Print the states of the replicas of a service and their reasons, until a replica of
    the newest revision is ready or the service cannot get one. Return its state."""
    teller = _ReplicaTeller()
    first = service = client.service(name)
    while not _is_settled(service, first):
        for replica in service.replica_list:
            teller.tell(replica)
        clock_time.sleep(FOLLOW_POLL_SECONDS)
        service = client.service(name)
    if not _is_served(service):
        for line in (service.turned_back_reason, service.last_end):
            if line:
                note(clean(line))
    return service


def _failure_text(service: "shapes.ServiceView") -> str:
    """Return what serves now, after a revision has not become ready."""
    see = f"see: corral why {service.name}"
    if not service.ready:
        return f"{service.name} has no ready replica; {see}"
    return (
        f"revision {_newest(service)} of {service.name} is not ready; revision "
        f"{service.revision} still serves, by {counted(service.ready, 'ready replica')}; "
        f"{see}"
    )


@dataclass(slots=True)
class _ReplicaTeller:
    """Prints each state of a replica once, and a new reason once in a while."""

    _states: dict[str, str] = field(default_factory=dict)
    _reasons: dict[str, str] = field(default_factory=dict)
    _told_at: dict[str, float] = field(default_factory=dict)

    def tell(self, replica: "shapes.ReplicaView") -> None:
        state, now = replica_state(replica), SystemClock().monotonic()
        is_old = now - self._told_at.get(replica.job, now) >= REASON_SECONDS
        has_news = self._reasons.get(replica.job) != replica.reason and is_old
        if self._states.get(replica.job) == state and not has_news:
            return
        self._states[replica.job] = state
        self._reasons[replica.job] = replica.reason
        self._told_at[replica.job] = now
        reason = f": {clean(replica.reason)}" if replica.reason else ""
        note(f"{replica.name} is {state}{reason}")


def _is_settled(service: "shapes.ServiceView", first: "shapes.ServiceView") -> bool:
    """Return whether following ends: requests are served by the newest revision, or a
    replica ended before it was ready, or the revision did not pass its canary."""
    return (
        _is_served(service)
        or service.state != "ACTIVE"
        or service.turned_back == _newest(service)
        or service.failed_starts > first.failed_starts
    )


def _is_served(service: "shapes.ServiceView") -> bool:
    """Return whether a replica of the newest revision is ready, or the service needs
    none until the first request."""
    is_ready = any(
        replica.is_ready and replica.revision == _newest(service)
        for replica in service.replica_list
    )
    is_idle = service.replicas.partition("..")[0] == "0" and not service.replica_list
    return service.state == "ACTIVE" and (is_ready or is_idle)


def _newest(service: "shapes.ServiceView") -> int:
    return max((revision.number for revision in service.revisions), default=0)


def say_how_to_call(service: "shapes.ServiceView", common: Common) -> None:
    """Print the URL and the model of a service, and a command that calls it."""
    model = model_of(service)
    if not service.url:
        note(f"{service.name} is ready, but no gateway runs: corral gateway --help")
        return
    say(f"{service.name} is ready: {counted(service.ready, 'replica')}")
    if service.canary is not None and not service.canary_passed:
        note(
            f"revision {service.canary} is tried on a part of the requests, and revision "
            f"{service.revision} gets the others; for the result, run: corral why "
            f"{service.name}"
        )
    url = base_url(service)
    show_pairs([("URL", url), ("model", model), ("token", _token_text(common))])
    body = f'{{"model": "{model}", "messages": [{{"role": "user", "content": "Hi"}}]}}'
    say(
        f'curl {url}/chat/completions -H "Authorization: Bearer $CORRAL_TOKEN" '
        f"-H 'Content-Type: application/json' -d {shlex.quote(body)}"
    )


def _token_text(common: Common) -> str:
    """Return how to set CORRAL_TOKEN in a shell, if it is not set."""
    file = common.place.root / "token"
    if os.environ.get("CORRAL_TOKEN"):
        return "$CORRAL_TOKEN"
    if not common.remote and file.exists():
        return f"export CORRAL_TOKEN=$(cat {shlex.quote(str(file))})"
    return "to create one, run: corral token create --role caller"
