"""What a cluster may need beside the base install."""

from importlib.util import find_spec
from typing import Final

from corral.boot.settings import ClusterSettings
from corral.domain.errors import Conflict

_MODULES: Final = {"postgres": "psycopg", "ray": "ray"}  # an extra of the package -> what it brings


def check_extra(extra: str, what: str) -> None:
    """Raises: Conflict where what `what` needs of this extra is not installed."""
    module = _MODULES[extra]
    if find_spec(module) is None:
        raise Conflict(
            f"{what} needs more than the base install: no module named {module!r}",
            hint=f"run: pip install 'corral[{extra}]'",
        )


def check_installed(settings: ClusterSettings) -> None:
    """Raises: Conflict when a head with these settings lacks what it needs."""
    if settings.engine == "ray":
        check_extra("ray", "the ray engine")
    if settings.store_file is not None:
        check_extra("postgres", "--store-file")
