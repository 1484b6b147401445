"""Text of services: rows of their listing, details, replicas and reasons."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from corral.cli.printing import (
    age_text,
    clean,
    clock_text,
    cut,
    say,
    show_pairs,
    show_table,
    state,
    table,
)
from corral.domain.units import counted, duration_text, share_text

if TYPE_CHECKING:
    from rich.text import Text

    from corral.wire import service_answers as shapes

MOST_MODELS = 3
WHY_EVENTS = 5  # newest changes of the number of replicas


def show_services(services: "Sequence[shapes.ServiceRow]", now: float) -> None:
    """Print a table of services, what is wrong with them, and the URL of the gateway.
    With stopped services, each has its id, because several may have one name. `now` in
    seconds since 1970."""
    has_stopped = any(service.is_stopped for service in services)
    rows = table(
        *["ID"] * has_stopped,
        "NAME",
        "MODEL",
        "STATE",
        "REVISION",
        "READY",
        "REPLICAS",
        "REQ/S",
        "TTFT P90",
        "AGE",
        *["STOPPED"] * has_stopped,
        right=("REPLICAS", "REQ/S", "TTFT P90", "AGE", "STOPPED"),
    )
    for service in services:
        per_second = f"{service.rates.requests_per_second:.3g}"
        rows.add_row(
            *[service.id] * has_stopped,
            service.name,
            model_of(service),
            state(service.condition_text),
            revision_text(service),
            "" if service.is_stopped else ready_text(service),
            service.replicas,
            "" if service.is_stopped else per_second,
            latency_text(service.rates.ttft_p90_seconds),
            age_text(now - service.created_at),
            *[_stopped_text(service, now)] * has_stopped,
        )
    show_table(rows)
    for service in services:
        if service.problem:
            say(f"{service.name}: {clean(service.problem)}")
    # the base URL of OpenAI clients is the same for all services with a model
    by_kind = sorted(services, key=lambda service: service.is_http)
    url = next(filter(None, map(base_url, by_kind)), "")
    if url:
        say(f"URL {url}")


def _stopped_text(service: "shapes.ServiceRow", now: float) -> str:
    if service.stopped_at is None:
        return ""
    return f"{age_text(now - service.stopped_at)} ago"


def model_of(service: "shapes.ServiceRow") -> str:
    """Return the name under which a service is called: that of its model if it has one,
    else its own."""
    others = (name for name in service.models if name != service.name)
    return next(others, service.name)


def base_url(service: "shapes.ServiceRow") -> str:
    """Return the base URL for OpenAI clients, or that of an HTTP service; "" without a
    gateway."""
    if not service.url or service.is_stopped:
        return ""
    path = f"services/{service.name}/" if service.is_http else "v1"
    return f"{service.url}/{path}"


def ready_text(service: "shapes.ServiceRow") -> str:
    """Return how many of the wanted replicas are ready, of each role if there are
    any."""
    if service.roles:
        return ", ".join(role.ready_text for role in service.roles)
    return f"{service.ready} of {service.wanted}"


def revision_text(service: "shapes.ServiceRow") -> str:
    canary = "" if service.canary is None else f", canary {service.canary}"
    return f"{service.revision}{canary}"


def latency_text(seconds: float | None) -> str:
    """Return a latency in ms or s; "" if it is not known."""
    if seconds is None:
        return ""
    return f"{seconds * 1000:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def show_service(service: "shapes.ServiceView") -> None:
    """Print all details of a service."""
    show_pairs(_detail_rows(service))
    if service.replica_list:
        say()
        _show_replicas(service.replica_list)
    if service.events:
        say()
    for event in service.events:
        say(f"{clock_text(event.at)} {event.kind}: {clean(event.text)}")


def _detail_rows(
    service: "shapes.ServiceView",
) -> "list[tuple[str, str | Text | None]]":
    models = ", ".join(service.models[:MOST_MODELS])
    further = len(service.models) - MOST_MODELS
    more = f" and {further} more" if further > 0 else ""
    spec = service.spec or {}
    return [
        ("service", f"{service.name} ({service.id})"),
        ("state", state(service.condition_text)),
        ("problem", clean(service.problem)),
        *_reason_rows(service),
        ("model", "" if service.is_http else models + more),
        ("engine", str(spec.get("engine", ""))),
        ("owner", f"{service.owner}, queue {service.queue}"),
        ("revision", _revision_detail(service)),
        ("ready", f"{ready_text(service)} wanted; {service.replicas} allowed"),
        ("requests", _requests_text(service.rates)),
        ("TTFT", _quantiles_text(service.rates, "ttft")),
        ("ITL", _quantiles_text(service.rates, "itl")),
        ("tokens", _tokens_text(service.rates)),
        ("cost", _cost_text(service)),
        ("URL", base_url(service)),
        ("created", clock_text(service.created_at)),
        ("stopped", clock_text(service.stopped_at) if service.stopped_at else ""),
        ("run", str(spec.get("run", ""))),
    ]


def _reason_rows(service: "shapes.ServiceView") -> list[tuple[str, str]]:
    """Return why there is this number of replicas, of each role if there are any."""
    if not service.roles:
        return [("reason", clean(service.reason))]
    return [(role.role, clean(role.reason)) for role in service.roles]


def _revision_detail(service: "shapes.ServiceView") -> str:
    applied = {revision.number: revision for revision in service.revisions}
    current = applied.get(service.revision)
    text = str(service.revision)
    if current is not None:
        text += f", applied by {current.by} on {clock_text(current.at)}"
    if service.canary is not None:
        verb = "replaces it" if service.canary_passed else "is tried as a canary"
        text += f"; revision {service.canary} {verb}"
    if is_turned_back(service):
        text += f"; revision {service.turned_back} did not pass its canary"
        text += f": {clean(service.turned_back_reason)}"
    return text


def is_turned_back(service: "shapes.ServiceView") -> bool:
    """Return whether the newest revision did not pass its canary. An older one that did
    not pass says nothing of one that serves or is tried since."""
    newest = max(service.revision, service.canary or 0)
    return service.turned_back is not None and service.turned_back > newest


def _requests_text(rates: "shapes.ServiceRatesView") -> str:
    failed = (
        f", {rates.failed_per_second:.3g} of them failed"
        if rates.failed_per_second
        else ""
    )
    return (
        f"{rates.requests_per_second:.3g} a second{failed}; {rates.under_way} under way"
    )


def _quantiles_text(rates: "shapes.ServiceRatesView", name: str) -> str:
    p50 = latency_text(getattr(rates, f"{name}_p50_seconds"))
    p90 = latency_text(getattr(rates, f"{name}_p90_seconds"))
    return f"p50 {p50}, p90 {p90}" if p50 and p90 else ""


def _tokens_text(rates: "shapes.ServiceRatesView") -> str:
    if not rates.tokens_per_second:
        return ""
    cached = (
        f"; {share_text(rates.cached_share)} of the prompts' tokens were cached"
        if rates.cached_share is not None
        else ""
    )
    return f"{rates.tokens_per_second:.3g} a second{cached}"


def _cost_text(service: "shapes.ServiceView") -> str:
    if service.million_token_cost is None:
        return ""
    cost = f"{service.million_token_cost:.3g} {service.currency}"
    return f"{cost} for a million tokens, since yesterday (UTC)"


def _show_replicas(replicas: "Sequence[shapes.ReplicaView]") -> None:
    has_roles = any(replica.role for replica in replicas)
    rows = table(
        "REPLICA",
        "ID",
        *["ROLE"] * has_roles,
        "STATE",
        "REVISION",
        "NODES",
        "READY SINCE",
        "UNDER WAY",
        "WHY",
        right=("REPLICA", "REVISION", "UNDER WAY"),
    )
    for replica in replicas:
        rows.add_row(
            str(replica.number),
            replica.job,
            *[replica.role] * has_roles,
            state(replica_state(replica)),
            str(replica.revision),
            ",".join(replica.nodes),
            clock_text(replica.ready_at) if replica.ready_at is not None else "",
            "" if replica.under_way is None else str(replica.under_way),
            cut(replica.reason),
        )
    show_table(rows)


def replica_state(replica: "shapes.ReplicaView") -> str:
    """Return the state of a replica: READY, DRAINING, the phase of its sleep, or the
    state of its job."""
    if replica.draining_at is not None:
        return "DRAINING"
    if replica.sleep:
        return replica.sleep.upper()
    return "READY" if replica.is_ready else replica.state


def why_lines(service: "shapes.ServiceView", now: float) -> Iterator[str]:
    """Yield the reason of a service's state, and of each replica that is not ready.
    `now` in seconds since 1970."""
    if service.is_stopped:
        reason = f": {clean(service.reason)}" if service.reason else ""
        yield f"{service.name} is {service.condition_text}{reason}"
        return
    verb = "is" if service.wanted == 1 else "are"
    replicas = f"{service.ready} of {counted(service.wanted, 'replica')} {verb} ready"
    if not service.wanted:
        replicas = "it needs no replica now"
    yield f"{service.name} is {service.condition_text}: {replicas}"
    if service.reason and not service.roles:
        yield f"  {clean(service.reason)}"
    for role in service.roles:
        reason = f": {clean(role.reason)}" if role.reason else ""
        yield f"  {role.ready_text} ready{reason}"
    for event in service.scale_events[-WHY_EVENTS:]:
        yield f"  {clock_text(event.at)} {clean(event.text)}"
    if service.canary is not None or is_turned_back(service):
        yield f"  revision {_revision_detail(service)}"
    for replica in service.replica_list:
        if not replica.is_ready:
            role_text = f", {replica.role}" if replica.role else ""
            yield (
                f"  {replica.name} ({replica.job}{role_text}) is "
                f"{replica_state(replica)}: "
                f"{clean(replica.reason)}"
            )
    if service.failed_starts:
        when = ""
        if service.retry_at is not None and service.retry_at > now:
            when = f"; the next one starts in {duration_text(service.retry_at - now)}"
        row = " in a row" if service.failed_starts > 1 else ""
        yield (
            f"  {counted(service.failed_starts, 'replica')}{row} ended before being "
            f"ready for 60 s{when}"
        )
    if service.last_end:
        yield f"  {clean(service.last_end)}"
