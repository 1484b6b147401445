"""Extras that a cluster needs beyond the base install."""

from importlib.metadata import version
from importlib.util import find_spec
from typing import Final

from corral.boot.oidc_provider import provider_secret, rule_of
from corral.boot.settings import ClusterSettings
from corral.domain.errors import Conflict

_MODULES: Final = {  # an extra of the package -> what it brings
    "postgres": "psycopg",
    "ray": "ray",
    "kubernetes": "lightkube",
    "oidc": "joserfc",
    "monitoring": "bcrypt",
}


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
    if settings.engine in _MODULES:
        check_extra(settings.engine, f"the {settings.engine} engine")
    if settings.monitoring:
        # most commands need none of it
        from corral.boot.monitoring import check_prometheus

        check_prometheus()
        check_extra("monitoring", "--monitoring")
    if rule_of(settings) is not None:
        check_extra("oidc", "--oidc-issuer")
        provider_secret(settings)
    if settings.store_file is not None:
        check_extra("postgres", "--store-file")


def needed_to_join(settings: ClusterSettings) -> tuple[str, ...]:
    """Return the extras that a joining machine needs: all nodes of a Ray cluster have
    the same Ray."""
    return (f"ray=={version('ray')}",) if settings.engine == "ray" else ()
