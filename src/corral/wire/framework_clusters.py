"""The environment variables from which TensorFlow and JAX learn the processes of a
gang."""

import json
from typing import Final

from corral.domain.desired_state import Launch
from corral.domain.job import Per

TF_CONFIG: Final = "TF_CONFIG"
JAX_COORDINATOR: Final = "JAX_COORDINATOR_ADDRESS"


def cluster_of_rank(launch: Launch, rank: int) -> dict[str, str]:
    """Return the variables of one rank; empty for a job with one rank, a replica and a
    Ray program. Variables of the job itself take precedence.

    JAX finds the number of processes by Slurm's names, which only ranks of GPUs have.
    """
    size = len(launch.nodes) * (1 if launch.per == Per.NODE else launch.ranks)
    if size < 2 or launch.replica is not None or launch.ray:
        return {}
    variables = {TF_CONFIG: _tf_config(launch, rank)}
    if launch.per == Per.GPU:
        variables[JAX_COORDINATOR] = f"{launch.master_address}:{launch.master_port}"
    own_variables = dict(launch.env)
    return {
        name: value for name, value in variables.items() if name not in own_variables
    }


def _tf_config(launch: Launch, rank: int) -> str:
    """Return TensorFlow's description of the gang. Each rank listens on all addresses
    of its machine, on which there may be several nodes: a port above the attempt's."""
    ranks_per_node = 1 if launch.per == Per.NODE else launch.ranks
    hosts = [address for address in launch.nodes for _ in range(ranks_per_node)]
    workers = [
        f"{host}:{launch.master_port + number}" for number, host in enumerate(hosts)
    ]
    task = {"type": "worker", "index": rank}
    return json.dumps({"cluster": {"worker": workers}, "task": task})
