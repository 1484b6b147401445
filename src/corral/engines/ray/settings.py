"""Settings of a cluster on Ray."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Any, ClassVar, Final

from corral.engines.typed_settings import read_settings, wrong

NODE_DIR: Final = "/var/tmp/corral-nodes"


@dataclass(frozen=True, slots=True, kw_only=True)
class RaySettings:
    """Settings of the Ray engine. `address`: HOST:PORT of a Ray cluster to join; ""
    starts one. `token_file`: the token of that cluster; "" for the one that Corral
    makes, or for a cluster without a token.

    `host`: the address of this machine's Ray node; "" for the one that Ray finds.
    `num_cpus` and `num_gpus`: those of this machine's Ray node; None for what Ray
    detects. `pretend`: the GPUs that Ray counts are simulated, of the type `gpu_type`
    where Ray knows none. `node_dir`: the directory on each machine for the folders of
    nodes. `hold`: reserve free GPUs in Ray's accounting for Corral, and release them
    when another program of the Ray cluster waits for some. `redis`: HOST:PORT of a
    Redis without a password, in which a Ray that is started here stores its state, so
    that its nodes survive its end. `autoscaling_config`: the file by which Ray's
    autoscaler makes nodes, for a Ray that is started here. `autoscale`: the Ray cluster
    that is joined has an autoscaler; its file may also be given, so that Corral knows
    which nodes it could add. `idle_seconds`: a node on which nothing has run for this
    time is left to the autoscaler.
    """

    NAME: ClassVar[str] = "ray"
    FILES: ClassVar[Mapping[str, str]] = {
        "token_file": "copy ~/.ray/auth_token of the Ray head to FILE",
        "autoscaling_config": "write FILE as Ray documents it for autoscaling clusters",
    }
    EXAMPLES: ClassVar[Mapping[str, str]] = {
        "address": "10.0.0.1:6379",
        "token_file": "~/.ray/auth_token",
        "host": "10.0.0.2",
        "gpu_type": "h100",
        "node_dir": NODE_DIR,
        "shared": "/shared",
        "redis": "10.0.0.1:6379",
        "autoscaling_config": "~/ray-autoscaling.yaml",
    }

    address: str = ""
    token_file: str = ""
    host: str = ""
    num_cpus: int | None = None
    num_gpus: int | None = None
    pretend: bool = False
    gpu_type: str = "h100"
    node_dir: str = NODE_DIR
    shared: tuple[str, ...] = ()
    hold: bool = True
    redis: str = ""
    autoscaling_config: str = ""
    autoscale: bool = False
    idle_seconds: float = 60.0

    def __post_init__(self) -> None:
        for name, description in (("address", "a Ray cluster"), ("redis", "a Redis")):
            if not _is_address(address := getattr(self, name)):
                raise wrong(
                    RaySettings,
                    name,
                    f"{name}={address} is not the address of {description}: write "
                    "HOST:PORT",
                )
        for name in ("num_cpus", "num_gpus"):
            if (count := getattr(self, name)) is not None and count < 0:
                raise wrong(
                    RaySettings,
                    name,
                    f"{name}={count} must be 0 or more",
                )
        if not 0 <= self.idle_seconds < inf:
            description = (
                f"idle_seconds={self.idle_seconds:g} must be 0 or more seconds"
            )
            raise wrong(RaySettings, "idle_seconds", description)
        if not self.node_dir.startswith("/"):
            description = (
                f"node_dir={self.node_dir} must be an absolute path, which begins with "
                "/"
            )
            raise wrong(RaySettings, "node_dir", description)
        if self.token_file and not self.address:
            description = (
                "token_file is set, but address, the Ray cluster to join, is missing"
            )
            raise wrong(RaySettings, "token_file", description, "address")

    @property
    def scales(self) -> bool:
        """Return whether an autoscaler adds and removes nodes as needed."""
        return self.autoscale or bool(self.autoscaling_config)

    @classmethod
    def of(cls, raw: Mapping[str, Any]) -> "RaySettings":
        """Parse the settings given by --set NAME=VALUE, or stored ones. Raises:
        SpecInvalid."""
        return read_settings(cls, raw)


def _is_address(text: str) -> bool:
    """Return whether the text is HOST:PORT, or empty."""
    host, colon, port = text.rpartition(":")
    return not text or bool(host and colon and port.isdecimal())
