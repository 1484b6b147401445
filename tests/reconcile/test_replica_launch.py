"""What the nodes of a replica get of its service."""

from corral.domain.desired_state import ReplicaLaunch
from corral.domain.ids import NodeId
from corral.domain.job import ModelCheck
from corral.domain.replica_jobs import replica_key, replica_spec
from corral.domain.service_access import Adapter
from corral.reconcile.desired_state import launch_of
from corral.wire.agent_messages import encode
from tests.reconcile.serving import CHAT, Serving, service_spec


def test_a_node_gets_a_key_of_the_attempt_and_never_the_secret_of_the_service() -> None:
    serving = Serving()
    serving.tick(times=2)
    service = serving.service
    (row,) = service.replicas
    world = serving.cluster.world
    job, attempt = world.jobs[row.job], world.attempts[row.job]
    role = job.spec.replica
    assert role is not None
    launch = launch_of(world, job, attempt, NodeId(attempt.nodes[0]))
    assert launch.replica == ReplicaLaunch(
        service=CHAT,
        revision=1,
        number=row.number,
        probe="/health",
        key=replica_key(role, job.id, attempt.number),
    )
    assert launch.array_index is None, "its program is not one of an array"
    assert service.key_seed.encode() not in encode(launch)


def test_a_node_gets_what_the_engine_shows_before_its_replica_is_ready() -> None:
    check = ModelCheck(names=("chat",))
    adapters = tuple(
        Adapter(name=name, source=source)
        for name, source in (("a", "/data/a"), ("b", "s3://bucket/b"))
    )
    serving = Serving(service_spec(model_check=check, adapters=adapters))
    serving.tick(times=2)
    (row,) = serving.service.replicas
    world = serving.cluster.world
    job, attempt = world.jobs[row.job], world.attempts[row.job]
    launch = launch_of(world, job, attempt, NodeId(attempt.nodes[0]))
    assert launch.replica is not None
    assert launch.replica.model_check == check
    assert launch.replica.adapters == ("s3://bucket/b",), "engines load the others"


def test_the_secret_of_a_service_is_in_no_text_of_it() -> None:
    serving = Serving()
    serving.tick(times=2)
    service = serving.service
    spec = replica_spec(service, service.current, 1)
    assert service.key_seed not in repr(service)
    assert service.key_seed not in repr(spec)
