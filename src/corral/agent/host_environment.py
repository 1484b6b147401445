"""Environment variables of ranks that only the machine they run on can supply."""

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Final

PASSED_ON: Final = (
    "PATH",
    "LANG",
    "LC_ALL",
    "TZ",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "TMPDIR",
    "LD_LIBRARY_PATH",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "SSL_CERT_FILE",
)
OWN: Final = ("CORRAL_", "SLURM_", "MASTER_", "KUBERNETES_")
# set in each pod of Kubernetes, which is its container's own
POD: Final = "CORRAL_NODE_NAME"
ENVIRONMENTS: Final = ("VIRTUAL_ENV", "CONDA_PREFIX")
GLOO: Final = "GLOO_SOCKET_IFNAME"


def passed_on(host: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of the agent's environment that ranks inherit; variables of
    the job override them.

    In a pod the ranks inherit the agent's whole environment, except Corral's own
    variables: it comes from the image and from device plugins, and is meant for the
    ranks.
    """
    if POD in host:
        return {name: value for name, value in host.items() if not name.startswith(OWN)}
    return {name: host[name] for name in PASSED_ON if name in host}


def with_active_environment(
    env: Mapping[str, str], own: Mapping[str, str], has_image: bool = False
) -> dict[str, str]:
    """Return the variables with the submitter's Python environment first on PATH, if
    that environment exists on this node.

    If it does not exist, its variable is removed, and the ranks use the Python of the
    agent's PATH.

    Args:
        own: variables of the job itself.
        has_image: whether the ranks run in an image.
    """
    name = next((variable for variable in ENVIRONMENTS if variable in own), None)
    if name is None or "PATH" in own or has_image:
        return dict(env)
    other_variables = {
        variable: value
        for variable, value in env.items()
        if variable not in ENVIRONMENTS
    }
    if not os.access(f"{own[name]}/bin/python", os.X_OK):
        return other_variables
    path = f"{own[name]}/bin:{env.get('PATH', os.defpath)}"
    return {**other_variables, name: own[name], "PATH": path}


def interpreter() -> dict[str, str]:
    """Return the variable that names Corral's own Python interpreter on this machine."""
    return {"CORRAL_PYTHON": sys.executable}


def interface(
    nodes: Sequence[str], node_rank: int, env: Mapping[str, str]
) -> dict[str, str]:
    """Return the variable that selects gloo's network interface, for a gang on several
    machines; nothing for other jobs, or if the job sets the variable itself. Without it
    gloo uses the interface to which the machine's own name resolves, which is often
    loopback."""
    if len(set(nodes)) < 2 or GLOO in env:
        return {}
    # only a gang waits for it to be read
    from corral.agent.own_address import interface_of

    try:
        name = interface_of(nodes[node_rank])
    except OSError:
        return {}
    return {GLOO: name} if name else {}
