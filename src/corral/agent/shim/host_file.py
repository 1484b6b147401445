"""The file with the nodes of an attempt for mpirun and similar launchers, and the
program with which mpirun starts ranks on other nodes instead of ssh."""

import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

HOST_FILE: Final = "CORRAL_HOSTFILE"
FILE_NAME: Final = "hostfile"
_STARTER: Final = "corral.agent.batch.remote_start"
# Open MPI 5 (PRRTE) and Open MPI 4
_STARTER_NAMES: Final = ("PRTE_MCA_plm_ssh_agent", "OMPI_MCA_plm_rsh_agent")
_FILE_NAMES: Final = (
    "PRTE_MCA_prte_default_hostfile",
    "OMPI_MCA_orte_default_hostfile",
)
# Slurm's variables without its srun end mpirun; only a batch script has srun
_WITHOUT_SLURM: Final = {
    f"{prefix}_MCA_{part}": "^slurm"
    for prefix in ("PRTE", "OMPI")
    for part in ("ras", "plm")
}
# variables that a batch script, which has srun, does not get
ONLY_WITHOUT_SRUN: Final = (*_WITHOUT_SLURM, *_FILE_NAMES)


def host_lines(env: Mapping[str, str], slots: int) -> str:
    """Return the content of the file: a line for each node, such as `10.0.0.1
    slots=8`."""
    hosts = [host for host in env.get("CORRAL_NODES", "").split(",") if host]
    return "".join(f"{host} slots={slots}\n" for host in hosts)


def with_host_file(env: Mapping[str, str], attempt_folder: str) -> dict[str, str]:
    """Write the file into the attempt's folder, and return the environment with its
    path. A node has a slot for each GPU, or for each CPU without GPUs. Without room for
    the file the environment does not name it."""
    gpus = int(env.get("SLURM_GPUS_ON_NODE") or 0)
    slots = gpus or int(env.get("SLURM_CPUS_ON_NODE") or 1)
    starter = f"{sys.executable} -P -m {_STARTER}"
    variables = {**_WITHOUT_SLURM, **dict.fromkeys(_STARTER_NAMES, starter)}
    file = Path(attempt_folder) / FILE_NAME
    with suppress(OSError):
        file.write_text(host_lines(env, slots))
        # ranks with other accounts read it; the umask of the agent is narrower
        file.chmod(0o644)
        variables |= dict.fromkeys((HOST_FILE, *_FILE_NAMES), str(file))
    return {**variables, **env}
