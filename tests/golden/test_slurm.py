"""The batch scripts that Slurm is handed. The golden file is the review."""

import pytest

from corral.domain.external_candidate import ExternalCandidate
from corral.domain.ids import AttemptNumber, JobId, NodeId
from corral.domain.job import JobSpec
from corral.domain.resources import Resources
from corral.engines.slurm.batch_script import AttemptPaths, script_of
from corral.engines.slurm.queued_script import Grounds, asking_script_of, batch_name
from corral.engines.slurm.settings import SlurmSettings
from tests.engines.slurm.gangs import CLUSTER, gang_of
from tests.golden.transcript import check

GIB = 1024**3
TYPES = {
    NodeId("fa1"): ("h100", "h100"),
    NodeId("fa2"): ("h100", "h100"),
    NodeId("x"): ("", ""),
}

MEMORY = dict.fromkeys(TYPES, 8 * GIB)


def place_of(folder: str) -> AttemptPaths:
    return AttemptPaths(
        folder=folder,
        python="/opt/corral/bin/python",
        gpu_types=TYPES,
        memory_bytes=MEMORY,
    )


def candidate(
    index: int | None = None, *, nodes: int = 1, **more: object
) -> ExternalCandidate:
    resources = Resources(
        gpu_millis=2000, gpu_type="h100", cpu_millis=3500, memory_bytes=GIB
    )
    name = "tiny" if index is None else f"tiny_{index}"
    spec = JobSpec(name=name, run="true", nodes=nodes, resources=resources, array_index=index,
                   array_limit=2 if index is not None else None,
                   max_duration_seconds=None if index is None else 1800.0)  # fmt: skip
    job, array = ("j17", None) if index is None else (f"j17_{index}", JobId("j17"))
    key = (JobId(job), AttemptNumber(1))
    return ExternalCandidate(key=key, spec=spec, array=array, **more)  # type: ignore[arg-type]


def asking_scripts() -> dict[str, str]:
    grounds = Grounds(
        root="/shared/it's",
        python="/opt/corral/bin/python",
        nodes=(NodeId("fa1"), NodeId("fa2"), NodeId("x")),
        gpu_types=frozenset({"H100"}),
        most_memory_bytes=8 * GIB,
    )
    groups = {
        "Slurm places two nodes, but not on one that will not do": [
            candidate(nodes=2, excluded=(NodeId("x"),))
        ],
        "Slurm places an array": [candidate(index) for index in (0, 3, 4)],
    }
    return {
        what: asking_script_of(
            group, name=batch_name(group, CLUSTER, "ab12"), settings=SlurmSettings(),
            grounds=grounds,
        )
        for what, group in groups.items()
    }  # fmt: skip


def test_batch_scripts(request: pytest.FixtureRequest) -> None:
    chosen = SlurmSettings(
        partition="gpu",
        account="team a",
        qos="high",
        reservation="night",
        options="--nice=5",
    )
    asked = {
        "one node, nothing but a command": (gang_of("fa1"), SlurmSettings()),
        "two nodes with GPUs, CPUs and memory": (
            gang_of("fa1", "fa2", gpus=2, cpu_millis=3500, memory_bytes=GIB), chosen
        ),
        "all the memory that the node has": (
            gang_of("fa1", memory_bytes=8 * GIB), SlurmSettings()
        ),
        "GPUs whose type Slurm does not name, no other job beside": (
            gang_of("x", gpus=1, exclusive=True), SlurmSettings()
        ),
        "a limit of two hours, as Slurm's backfill is told it": (
            gang_of("fa1", limit_seconds=7200.0), SlurmSettings()
        ),
    }  # fmt: skip
    parts = []
    for what, (gang, settings) in asked.items():
        text = script_of(
            gang,
            cluster=CLUSTER,
            settings=settings,
            place=place_of("/shared/it's/j17.1"),
        )
        parts.append(f"=== {what}\n{text}")
    parts += [f"=== {what}\n{text}" for what, text in asking_scripts().items()]
    check(
        "slurm_scripts",
        "\n".join(parts),
        update=bool(request.config.getoption("--update", default=False)),
    )


def test_nothing_that_a_job_says_of_itself_is_in_the_script() -> None:
    gang = gang_of("fa1", run="echo token=SWORDFISH")
    text = script_of(
        gang, cluster=CLUSTER, settings=SlurmSettings(), place=place_of("/shared/j17.1")
    )
    assert not any(
        word in text for word in ("SWORDFISH", "API_KEY", "a secret", "HF_TOKEN")
    )
