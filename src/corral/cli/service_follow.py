"""Following services until they are ready, or until a new revision has passed its
trial, and how to call them."""

import os
import shlex
import time as clock_time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from corral.boot.clock import SystemClock
from corral.cli.error_output import DONE, JOB_FAILED
from corral.cli.head_options import Common
from corral.cli.printing import clean, note, print_json, say, show_pairs
from corral.cli.service_text import base_url, model_of, replica_state
from corral.domain.event_kind import EventKind
from corral.domain.units import counted

if TYPE_CHECKING:
    from corral.client import Client
    from corral.wire import service_answers as shapes

FOLLOW_POLL_SECONDS: Final = 0.5
REASON_SECONDS: Final = 10.0  # between two reasons of a replica in the same state
TRIAL_EVENTS: Final = frozenset(
    {EventKind.CANARY_BEGUN, EventKind.CANARY_PASSED, EventKind.CANARY_TURNED_BACK}
)


def follow_services(
    client: "Client",
    revisions: Mapping[str, int],
    common: Common,
    *,
    until_passed: bool = False,
) -> int:
    """Follow the services at the same time until each has a ready replica, or cannot
    get one. Print how to call each, as soon as it is ready, and return the exit code.
    Ctrl-C ends only the output.

    Args:
        revisions: Revision of each service that all its replicas are to have.
        until_passed: Follow a revision on trial until it has passed or was turned back.
    """
    followed_services = [
        _Followed(
            service=client.service(name),
            target=_Target(revision=revision, until_passed=until_passed),
        )
        for name, revision in revisions.items()
    ]
    active = followed_services
    try:
        while active := [row for row in active if not _is_over(row, common)]:
            for followed in active:
                followed.tell()
            clock_time.sleep(FOLLOW_POLL_SECONDS)
            for followed in active:
                followed.service = client.service(followed.service.name)
    except KeyboardInterrupt:
        for followed in active:
            name = followed.service.name
            note(
                f"\n{name} continues; to see its state, run: corral service show {name}"
            )
        raise
    services = [followed.service for followed in followed_services]
    if common.json:
        print_json({"services": [view.model_dump(mode="json") for view in services]})
    has_failed = any(not followed.is_served for followed in followed_services)
    return JOB_FAILED if has_failed else DONE


@dataclass(frozen=True, slots=True, kw_only=True)
class _Target:
    """Revision that is followed: until a replica of it is ready or, with `until_passed`,
    until its trial has passed."""

    revision: int
    until_passed: bool

    def is_on_trial(self, service: "shapes.ServiceView") -> bool:
        return service.canary == self.revision and not service.canary_passed

    def is_served(self, service: "shapes.ServiceView") -> bool:
        """Return whether the revision serves, or needs no replica until the first
        request."""
        if service.state != "ACTIVE" or (
            self.until_passed and self.is_on_trial(service)
        ):
            return False
        is_ready = any(
            replica.is_ready and replica.revision == self.revision
            for replica in service.replica_list
        )
        is_idle = service.replicas.partition("..")[0] == "0"
        return is_ready or (is_idle and not service.replica_list)

    def has_failed(
        self, service: "shapes.ServiceView", first: "shapes.ServiceView"
    ) -> bool:
        """Return whether the revision will not serve: it is not wanted any more, or a
        replica ended before it was ready since the `first` view. A revision that is
        followed through its trial may make further replicas."""
        is_wanted = self.revision in (service.revision, service.canary)
        may_retry = self.until_passed and self.is_on_trial(service)
        has_ended = service.failed_starts > first.failed_starts and not may_retry
        return service.state != "ACTIVE" or not is_wanted or has_ended


def _tell_trial(service: "shapes.ServiceView", target: _Target, *, after: int) -> int:
    """Print the events of the revision's trial with a number above `after`. Return the
    newest number."""
    applied_at = [
        revision.at
        for revision in service.revisions
        if revision.number == target.revision
    ]
    for event in service.events:
        is_new = event.number > after and event.kind in TRIAL_EVENTS
        if is_new and applied_at and event.at >= applied_at[0]:
            note(clean(event.text))
    return max((event.number for event in service.events), default=after)


def _failure_text(service: "shapes.ServiceView", revision: int) -> str:
    """Return what serves now, after a revision has not become ready, or did not pass
    its trial."""
    see = f"see: corral why {service.name}"
    if service.state != "ACTIVE":
        return f"{service.name} is {service.state}; {see}"
    if not service.ready:
        return f"{service.name} has no ready replica; {see}"
    if service.turned_back == revision:
        what = "did not pass its trial"
    elif revision in (service.revision, service.canary):
        what = "is not ready"
    else:
        what = "was replaced by another one"
    return (
        f"revision {revision} of {service.name} {what}; revision {service.revision} "
        f"serves, by {counted(service.ready, 'ready replica')}; {see}"
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


@dataclass(slots=True, kw_only=True)
class _Followed:
    """A service that is followed, by its newest view."""

    service: "shapes.ServiceView"
    target: _Target
    last_event: int = 0
    _teller: _ReplicaTeller = field(default_factory=_ReplicaTeller)
    _first: "shapes.ServiceView" = field(init=False)

    def __post_init__(self) -> None:
        self._first = self.service

    @property
    def has_changed(self) -> bool:
        """Whether there was a view before the newest one."""
        return self.service is not self._first

    @property
    def is_served(self) -> bool:
        return self.target.is_served(self.service)

    @property
    def has_failed(self) -> bool:
        return self.target.has_failed(self.service, self._first)

    def tell(self) -> None:
        """Print the states of the revision's replicas, their reasons and the steps of
        its trial that are new."""
        for replica in self.service.replica_list:
            if replica.revision == self.target.revision:
                self._teller.tell(replica)
        self.tell_trial()

    def tell_trial(self) -> None:
        self.last_event = _tell_trial(self.service, self.target, after=self.last_event)


def _is_over(followed: _Followed, common: Common) -> bool:
    """Return whether the revision serves or cannot serve. Then print how to call the
    service, or why it does not serve."""
    service, target = followed.service, followed.target
    if not followed.is_served and not followed.has_failed:
        return False
    if followed.has_changed:
        followed.tell_trial()
    if not followed.is_served:
        if service.turned_back != target.revision and service.last_end:
            note(clean(service.last_end))
        note(_failure_text(service, target.revision))
    elif not common.json:
        say_how_to_call(service, common)
    return True


def say_how_to_call(service: "shapes.ServiceView", common: Common) -> None:
    """Print the URL and the model of a service, and a command that calls it."""
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
    url, model = base_url(service), model_of(service)
    header = '-H "Authorization: Bearer $CORRAL_TOKEN"'
    if service.is_http:
        show_pairs([("URL", url), ("token", _token_text(common))])
        say(f"curl {url} {header}")
        note(
            f"for OpenAI clients, if it answers them: base URL {service.url}/v1, model "
            f"{model}"
        )
        return
    show_pairs([("URL", url), ("model", model), ("token", _token_text(common))])
    body = f'{{"model": "{model}", "messages": [{{"role": "user", "content": "Hi"}}]}}'
    say(
        f"curl {url}/chat/completions {header} "
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
