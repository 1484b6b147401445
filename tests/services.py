"""Small values of services for tests, and a service that a head runs."""

from typing import Any

from corral.domain.ids import JobId, ServiceName, UserName
from corral.domain.job import JobSpec
from corral.domain.requests import ApplyService
from corral.domain.resources import Resources
from corral.domain.service import Service, ServiceSpec
from tests.api.heads import Agent, Head, eventually, up

SEED = "5eed" * 16
DOCUMENT = {
    "kind": "service",
    "name": "chat",
    "model": "tiny",
    "run": "python server.py --port $CORRAL_PORT",
    "probe": "/health",
    "replicas": "1..4",
    "resources": {"gpu": 1},
}


def service_spec(name: str = "chat", **more: Any) -> ServiceSpec:
    """A service of one GPU per replica; fields of the job by `job`."""
    job: dict[str, Any] = {
        "run": "python server.py",
        "resources": Resources(gpu_millis=1000),
        **more.pop("job", {}),
    }
    settings: dict[str, Any] = {"models": (f"{name}-model",), "max_replicas": 4}
    return ServiceSpec(
        name=ServiceName(name),
        replica=JobSpec(name=name, **job),
        **(settings | more),
    )


def apply_service(head: Head, spec: ServiceSpec, by: str = "alice") -> Service:
    request = ApplyService(spec=spec, key_seed=SEED)
    head.run(head.control.ask(request, by=UserName(by)))
    return head.control.world.services[spec.name]


def service_of(head: Head, name: str = "chat") -> Service:
    return head.control.world.services[ServiceName(name)]


def run_replica(
    head: Head,
    agent: Agent,
    job: str,
    *others: str,
    ready: bool = True,
    probe_text: str = "",
) -> None:
    """Let the agent start the replica, and say whether it answers its probe. `others`
    are replicas on the node that are ready."""
    agent.until(
        lambda: (
            bool(agent.wanted)
            and any(one.key[0] == job for one in agent.wanted[-1].run)
        )
    )
    seen = [up((other, 1), is_ready=True) for other in others]
    agent.beat(up((job, 1), is_ready=ready, probe_text=probe_text), *seen)
    eventually(lambda: head.control.world.jobs[JobId(job)].state == "RUNNING")
    if ready:
        eventually(
            lambda: any(
                row.job == job and row.is_ready
                for service in head.control.world.services.values()
                for row in service.replicas
            )
        )
