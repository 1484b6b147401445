"""The commands service ls, show, scale, rollback and stop, and `corral apply` for a file
of `kind: service`."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

from cyclopts import Parameter

from corral.boot.clock import SystemClock
from corral.cli import arrays
from corral.cli.batch_changes import change_each
from corral.cli.embedded_head import head_for
from corral.cli.error_output import Usage
from corral.cli.head_options import Change, Common, Ordinal, declined
from corral.cli.option_types import ReplicaRange, ServingRoleName
from corral.cli.printing import note, print_json, say
from corral.cli.service_text import (
    is_turned_back,
    show_service,
    show_services,
    why_lines,
)
from corral.domain.errors import Forgotten, NotFound
from corral.domain.units import counted

if TYPE_CHECKING:
    from corral.client import Client
    from corral.wire import api
    from corral.wire import service_answers as shapes
    from corral.wire.yaml_document import Document

T = TypeVar("T")
_ALL = Parameter(name=["--all", "-a"], negative="", show_default=False)


def ls(
    *,
    everything: Annotated[bool, _ALL] = False,
    common: Common = Common(),  # noqa: B008 - frozen
) -> None:
    """List the services, each with its ready replicas and request rate, and what is
    wrong with it.

    Args:
        everything: Include stopped services (default: active services only).
    """
    with common.client() as client:
        services = client.services(everything=everything)
    if common.json:
        print_json(
            {"services": [service.model_dump(mode="json") for service in services]}
        )
        return
    if services or everything:
        show_services(services, SystemClock().wall())
    if not services:
        note(
            "no services; to start one, run: corral serve NAME --engine vllm --model "
            "hf://org/name"
        )


def show(service: str, /, *, common: Common = Common()) -> None:  # noqa: B008 - frozen
    """Show one service with its replicas, revisions and newest events.

    Args:
        service: Name or id of the service.
    """
    with common.client() as client:
        service_view = client.service(service)
    show_found(service_view, common)


def show_found(service: "shapes.ServiceView", common: Common) -> None:
    if common.json:
        print_json(service)
    else:
        show_service(service)


def scale(
    service: str,
    replicas: ReplicaRange,
    /,
    *,
    role: ServingRoleName | None = None,
    common: Change = Change(),  # noqa: B008 - frozen
) -> None:
    """Set how many replicas a service may have.

    Args:
        service: Name of the service.
        replicas: Number of replicas: 2, or a range: 1..4. With 0, it has none.
        role: Which replicas of a service with roles: prefill or decode.
    """
    noun = f"{role} replicas" if role else "replicas"
    with common.client() as client:
        if not common.agreed(f"scale {service} to {replicas} {noun}?"):
            raise declined()
        scaled = client.scale_service(service, replicas, role=role or "")
    if common.json:
        print_json(scaled)
    else:
        say(f"{scaled.name}: replicas {scaled.replicas}; {_ready_now(scaled)}")


def roll_back(
    service: str,
    /,
    *,
    revision: Ordinal | None = None,
    common: Change = Change(),  # noqa: B008 - frozen
) -> None:
    """Serve an earlier revision of a service again.

    Args:
        service: Name of the service.
        revision: Number of the revision (default: the one before).
    """
    target = "its previous revision" if revision is None else f"revision {revision}"
    with common.client() as client:
        if not common.agreed(f"roll {service} back to {target}?"):
            raise declined()
        rolled = client.roll_back_service(service, revision)
    if common.json:
        print_json(rolled)
    else:
        say(f"{rolled.name} goes back to {target}; {_ready_now(rolled)}")


def _ready_now(service: "shapes.ServiceView") -> str:
    return service.ready_text if service.wanted else "it needs no replica now"


def stop(*services: str, common: Change = Change()) -> int:  # noqa: B008 - frozen
    """End services, after their replicas have finished the requests under way.

    Args:
        services: Names of the services.
    """
    if not services:
        raise Usage(
            "the name of a service is missing after: corral service stop",
            hint="run: corral service stop NAME; for the names, run: corral service ls",
        )
    with common.client() as client:
        if common.asks_before_loss:
            for line in _impact_lines(client, services):
                say(line, stderr=True)
        if not common.agreed(f"stop {', '.join(services)}?", destroys=True):
            raise declined("nothing was stopped")
        stopped, code = change_each(
            services,
            lambda name: [name],
            client.stop_service,
            _say_stopped,
            as_json=common.json,
        )
    if common.json and stopped:
        print_json(
            {"services": [service.model_dump(mode="json") for service in stopped]}
        )
    return code


def _say_stopped(service: "shapes.ServiceView") -> None:
    after = " once its replicas have finished" if service.replica_list else ""
    say(f"{service.name} is being stopped; it ends{after}")


def _impact_lines(client: "Client", services: Sequence[str]) -> list[str]:
    """Return what each service serves now, one line each. A service that does not exist
    is reported by the change itself."""
    lines = []
    for name in services:
        with suppress(NotFound):
            service = client.service(name)
            lines.append(
                f"{service.name} has {counted(service.ready, 'ready replica')}, "
                f"{service.rates.requests_per_second:.3g} requests a second and "
                f"{service.rates.under_way} under way"
            )
    return lines


def found_or_service(
    client: "Client", job: str, call: Callable[[str], T]
) -> "T | list[api.JobView] | shapes.ServiceView":
    """Return the answer of `call` for one job, the jobs of an array, or the service of
    this name or id. Raises: NotFound, Forgotten."""
    try:
        answer = arrays.found(client, job, call)
    except (NotFound, Forgotten):
        with suppress(NotFound):
            return client.service(job)
        raise
    if isinstance(answer, list):
        with suppress(NotFound):
            return client.service(answer[0].array or answer[0].id)
    return answer


def why_service(
    client: "Client", service: "shapes.ServiceView", common: Common
) -> None:
    """Print why a service is in its state, and where the output of its last replica
    that failed is."""
    if common.json:
        print_json(service)
        return
    for line in why_lines(service, SystemClock().wall()):
        say(line)
    if not service.failed_starts and not is_turned_back(service):
        return
    replicas = client.array(service.id, everything=True)
    ended = [job for job in replicas if job.state in ("FAILED", "DONE")]
    if ended:
        last = ended[-1]
        say(f"  for the output of {last.name}, run: corral logs {last.id}")


def replicas_of(client: "Client", service: "shapes.ServiceView") -> "list[api.JobView]":
    """Return the jobs of the unfinished replicas; without any, the last one.

    Raises: NotFound if the service has made no replica yet.
    """
    replicas = client.array(service.id, everything=True)
    if not replicas:
        raise NotFound("replica", f"{service.name}_1", see=f"corral why {service.name}")
    return [job for job in replicas if not job.is_over] or replicas[-1:]


def job_or_replicas(client: "Client", job: str) -> "api.JobDetail | list[api.JobView]":
    """Return one job, or the jobs of an array, or the replicas of a service.

    Raises: NotFound, Forgotten.
    """
    from corral.wire.service_answers import ServiceView

    answer = found_or_service(client, job, client.job)
    return replicas_of(client, answer) if isinstance(answer, ServiceView) else answer


def is_service_file(documents: "Sequence[Document]") -> bool:
    """Return whether the documents are services.

    Raises: SpecInvalid if only some of them are.
    """
    from corral.wire.spec_fields import SERVICE
    from corral.wire.spec_reader import Problem, refusal

    others = [
        document for document in documents if document.value.get("kind") != SERVICE
    ]
    if others and len(others) < len(documents):
        problem = Problem(
            where=("kind",),
            text="a file of services must not contain jobs or queues",
            hint="write the services into a file of their own",
        )
        raise refusal(others[0], [problem])
    return not others


def apply_services(file: Path, common: Change, *, dry_run: bool, follow: bool) -> int:
    """Apply the services of a file: show how they change, ask for confirmation, and
    apply them. Return the exit code."""
    from corral.cli.service_follow import follow_services
    from corral.client.service_input import read_wire_services

    read_wire_services(file)  # reports errors before anything is started
    with nullcontext() if dry_run else head_for(common), common.client() as client:
        applied = client.apply_services(file, dry_run=True)
        if not common.json and (dry_run or common.asks):
            say_applied(applied)
        if not dry_run:
            if not common.agreed("apply?"):
                raise declined(hint="correct the file, then run it again")
            applied = client.apply_services(file)
            if not common.json and not common.asks:
                say_applied(applied)
        is_followed = follow and not dry_run
        if common.json and is_followed:  # stdout is for the document of the end
            say_warnings(applied)
        elif common.json:
            print_json(applied)
        elif dry_run:
            note("nothing was changed, because of --dry-run")
        if not is_followed:
            return 0
        revisions = {change.name: change.revision for change in applied.services}
        return follow_services(client, revisions, common, until_passed=True)


def say_applied(applied: "shapes.ServicesApplied") -> None:
    """Print how each service changes, one line each."""
    for change in applied.services:
        text = {
            "created": "a new service",
            "revision": f"revision {change.revision}, which is tried and then replaces the others",
            "returned": f"its canary is ended, and revision {change.revision} stays",
            "changed": "changed; its replicas stay",
            "unchanged": "unchanged",
        }[change.change]
        say(f"{change.name}: {text}")
    say_warnings(applied)


def say_warnings(applied: "shapes.ServicesApplied") -> None:
    for sentence in applied.warnings:
        note(f"warning: {sentence}")
