"""Conversion of an allocation in a node's desired state to the spec of a shim. It works
on any machine.

If a batch system starts an attempt on its nodes, the spec of the shim is stored in the
folder of the attempt's node (its part). The ranks then start at once, while the agent
starts in parallel (0039).
"""

import json
from dataclasses import replace
from typing import Final

import msgspec

from corral.domain.desired_state import Launch
from corral.domain.job import Per
from corral.wire.node import NodeSettings
from corral.wire.rank_environment import of_attempt, of_node, of_rank
from corral.wire.shim_spec import Early, ShimSpec

# what is not begun by an agent is held together by who lent the node
ENGINE: Final = "engine"
# processes and threads; a data loader's workers are far below it
PIDS_PER_GPU: Final = 4096


def shim_spec_of(launch: Launch, settings: NodeSettings) -> ShimSpec:
    """Return the spec of the shim. The node fills in the folders, and the variables
    that depend on the machine."""
    job, attempt = launch.key
    per_node = launch.per == Per.NODE
    ranks = 1 if per_node else launch.ranks
    first_rank = launch.node_rank if per_node else launch.first_rank
    return ShimSpec(
        job=job,
        attempt=attempt,
        node=settings.node,
        folder="",
        work="",
        run=launch.run,
        setup=launch.setup,
        env=of_attempt(launch, settings),
        rank_env=[of_rank(launch, index) for index in range(ranks)],
        ranks=list(range(first_rank, first_rank + ranks)),
        containment=settings.containment or "",
        group="",
        pids=PIDS_PER_GPU * max(ranks, len(launch.seat.gpus)),
        cpu_millis=launch.seat.cpu_millis,
        memory_bytes=launch.seat.memory_bytes,
        watch=launch.watch,
    )


def early_of(
    launch: Launch, settings: NodeSettings, *, has_workdir: bool = False
) -> Early | None:
    """Return the launch with which a pilot starts the ranks before the agent runs.

    Return None if that is impossible: only an agent can fetch and prepare files, and no
    secret may be stored in a file, such as the key of a replica. `has_workdir`: the
    workdir is stored next to the spec.
    """
    needs_workdir = launch.workdir is not None and not has_workdir
    needs_files = needs_workdir or launch.image is not None or launch.model is not None
    has_secrets = bool(launch.secrets) or launch.replica is not None
    if needs_files or has_secrets or launch.ray or settings.containment != ENGINE:
        return None
    pretend = settings.pretend_gpus is not None
    own_variables = of_node(
        launch,
        shared=settings.shared,
        gpu_type=settings.gpu_type if launch.seat.gpus else "",
        pretend=pretend and bool(launch.seat.gpus),
    )
    spec = shim_spec_of(launch, settings)
    return Early(
        spec=replace(spec, env={**spec.env, **own_variables}),
        launch=json.loads(msgspec.json.encode(launch)),
        counts_gpus=bool(launch.seat.gpus) and not pretend,
        isolation=settings.isolation,
        hidden=list(settings.hidden),
        shared=list(settings.shared),
    )
