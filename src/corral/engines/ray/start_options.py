"""Options with which Ray is started, and the names of Corral's own objects in Ray. Pure
text."""

import sys
from collections.abc import Mapping
from typing import Final

from corral.engines.ray.settings import RaySettings

HEALTH: Final[Mapping[str, str]] = {
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "1000",
    "RAY_health_check_failure_threshold": "3",
}  # Ray's own see a frozen node after 14 s or never; these after 6 s
NODE_LABEL: Final = "corral.node"
PRETEND_LABEL: Final = "corral.pretend"  # its GPUs are made up, and of this type
_QUIET: Final = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
# Of a node that is to end, Ray waits for its actors, and the agent's never ends by
# itself.
_PROMPT: Final = {"RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0"}
_START: Final = (sys.executable, "-P", "-m", "ray.scripts.scripts", "start", "--block")
_LEAN: Final = ("--include-log-monitor=false", "--disable-usage-stats")
# of one cluster, among others in one Redis
_SESSIONS: Final = "RAY_external_storage_namespace"


def namespace(cluster: str) -> str:
    """Return Ray's namespace for a cluster's own actors."""
    return f"corral-{cluster}"


def actor_name(cluster: str, ray_node: str) -> str:
    """Return the name by which the agent actor of a node of Ray is found again."""
    return f"corral-agent-{cluster}-{ray_node}"


def hold_prefix(namespace: str) -> str:
    """Return the common prefix of the names of all reservations of a cluster."""
    return f"{namespace.replace('corral-', 'corral-gpu-', 1)}-"


def hold_name(cluster: str, ray_node: str, number: int) -> str:
    """Return the name of the placement group that reserves one GPU of a node for Corral
    in Ray's accounting."""
    return f"{hold_prefix(namespace(cluster))}{ray_node}-{number}"


def held_on(hold: str) -> str:
    """Return the node of Ray on which the placement group of this name reserves a GPU."""
    return hold.rsplit("-", 2)[1]


def environment(token_file: str) -> dict[str, str]:
    """Return the environment of every process of Ray and of every program that connects
    to it."""
    token = (
        {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": token_file}
        if token_file
        else {}
    )
    return {**HEALTH, **_QUIET, **_PROMPT, **token}


def keeping(redis: str, cluster: str) -> dict[str, str]:
    """Return additional environment for Ray's head. It names the Redis that stores
    Ray's state, so that Ray's next start continues with it; {} without Redis."""
    return {"RAY_REDIS_ADDRESS": redis, _SESSIONS: namespace(cluster)} if redis else {}


def head_words(settings: RaySettings, *, port: int, temp_dir: str) -> list[str]:
    """Return the command that starts a Ray cluster on this machine and runs until Ray
    is ended."""
    own_words = [
        f"--port={port}",
        "--include-dashboard=false",
        f"--temp-dir={temp_dir}",
    ]
    if settings.autoscaling_config:
        own_words.append(f"--autoscaling-config={settings.autoscaling_config}")
    return [*_START, "--head", *own_words, *_LEAN, *_node_words(settings)]


def join_words(
    settings: RaySettings, *, address: str, labels: Mapping[str, str]
) -> list[str]:
    """Return the command that makes this machine a node of a Ray cluster and runs until
    Ray is ended."""
    label_text = ",".join(f"{name}={value}" for name, value in labels.items())
    node_options = _node_words(settings)
    return [
        *_START,
        f"--address={address}",
        *_LEAN,
        *node_options,
        f"--labels={label_text}",
    ]


def _node_words(settings: RaySettings) -> list[str]:
    counts = {"cpus": settings.num_cpus, "gpus": settings.num_gpus}
    return [
        *([f"--node-ip-address={settings.host}"] if settings.host else []),
        *(
            f"--num-{name}={count}"
            for name, count in counts.items()
            if count is not None
        ),
    ]
