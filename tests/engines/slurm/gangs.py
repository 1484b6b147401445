"""Gangs as the head hands them to an engine."""

from corral.domain.attempt import Seat
from corral.domain.desired_state import Launch
from corral.domain.ids import AttemptNumber, JobId, NodeId
from corral.domain.job import Per

CLUSTER = "c0ffee42"


def gang_of(
    *nodes: str, job: str = "j17", gpus: int = 0, cpu_millis: int = 0, memory_bytes: int = 0,
    exclusive: bool = False, run: str = "true", limit_seconds: float | None = None,
) -> list[Launch]:  # fmt: skip
    """One launch for each node, by node rank; each has the node's last GPUs."""
    return [
        Launch(
            key=(JobId(job), AttemptNumber(1)),
            job_name="tiny gpt",
            seat=Seat(
                node=NodeId(node),
                gpus=tuple(range(2 - gpus, 2)),
                gpu_millis=gpus * 1000,
                cpu_millis=cpu_millis,
                memory_bytes=memory_bytes,
                exclusive=exclusive,
            ),
            node_rank=rank,
            nodes=nodes,
            first_rank=rank,
            ranks=1,
            world_size=len(nodes),
            master_address="127.0.0.1",
            master_port=20_000,
            run=run,
            setup=None,
            per=Per.NODE,
            env=(("API_KEY", "a secret that somebody put into env"),),
            secrets=("HF_TOKEN",),
            workdir=None,
            owner="ada",
            array_index=None,
            checkpoint=None,
            resume=(),
            grace_seconds=5.0,
            node_mtbf_seconds=1e6,
            limit_seconds=limit_seconds,
        )
        for rank, node in enumerate(nodes)
    ]
