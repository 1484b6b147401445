"""An engine's own settings, read before a cluster keeps them. Imports no engine."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from corral.boot.settings import LOCAL
from corral.domain.errors import SpecInvalid
from corral.engines.kubernetes.settings import KubernetesSettings
from corral.engines.ray.settings import RaySettings
from corral.engines.slurm.settings import SlurmSettings

READERS: Final[Mapping[str, Callable[[Mapping[str, Any]], object]]] = {
    "ray": RaySettings.of,
    "slurm": SlurmSettings.read,
    "kubernetes": KubernetesSettings.read,
}


def check_engine_settings(engine: str, given: Mapping[str, Any]) -> None:
    """Raises: SpecInvalid when the engine's head would not take them."""
    if engine == LOCAL and given:
        raise SpecInvalid(
            "the local engine has no settings of its own to --set",
            hint="name the engine that they are for: corral up --engine slurm --set partition=gpu",
        )
    if engine in READERS:
        READERS[engine](given)
