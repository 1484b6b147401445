"""What a cluster on Ray was asked to be."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from corral.domain.errors import SpecInvalid
from corral.engines.typed import read_settings

NODE_DIR: Final = "/var/tmp/corral-nodes"


@dataclass(frozen=True, slots=True, kw_only=True)
class RaySettings:
    """`address`: HOST:PORT of a Ray cluster to join; "" starts one. `token_file` is that cluster's
    token, "" for the one that Corral makes, or for one that has none.

    `host`: the address of this machine by which its Ray node is known, "" for the one that Ray
    finds. `num_cpus` and `num_gpus` are of this machine's Ray node, None for what Ray detects.
    `pretend`: GPUs that Ray counts are made up, of the type `gpu_type` where Ray knows none.
    `node_dir`: where on each machine the folders of nodes lie. `hold`: keep free GPUs in Ray's
    own books for Corral, and give them up when another program of the Ray cluster waits for some.
    `redis`: HOST:PORT of one without a password, where a Ray that is started here keeps what it
    knows: then its nodes outlive its end. `autoscaling_config`: the file by which Ray's autoscaler
    makes nodes, for a Ray that is started here; `autoscale` where the one that is joined has an
    autoscaler, with its file beside it if what it could bring is to be known. `idle_seconds`: a
    node on which nothing has run for so long is left to it.
    """

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
        for name, what in (("address", "a Ray cluster"), ("redis", "a Redis")):
            if not _is_address(getattr(self, name)):
                raise SpecInvalid(
                    f"{getattr(self, name)!r} is no address of {what}",
                    hint=f"write: corral up --engine ray --set {name}=10.0.0.1:6379",
                )
        if self.idle_seconds < 0 or min(self.num_cpus or 0, self.num_gpus or 0) < 0:
            raise SpecInvalid(
                "a Ray node has no negative parts, and no time is less than none",
                hint="write: corral up --engine ray --set idle_seconds=60",
            )

    @property
    def scales(self) -> bool:
        """Whether nodes come and go as they are needed."""
        return self.autoscale or bool(self.autoscaling_config)

    @classmethod
    def of(cls, raw: Mapping[str, Any]) -> "RaySettings":
        """What --set NAME=VALUE said, or what was kept of it. Raises: SpecInvalid."""
        return read_settings(cls, raw, engine="ray")


def _is_address(text: str) -> bool:
    """HOST:PORT, or none."""
    host, colon, port = text.rpartition(":")
    return not text or bool(host and colon and port.isdecimal())
