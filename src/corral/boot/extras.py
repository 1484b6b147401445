"""Optional packages (extras) that a cluster needs in addition to the base install."""

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
    """Check that the packages of this extra are installed. `what` names the feature
    that needs them.

    Raises: Conflict if the extra is not installed.
    """
    module = _MODULES[extra]
    if find_spec(module) is None:
        raise Conflict(
            f"{what} needs a Python package that is not installed: {module}",
            hint=f"run: pip install 'corral[{extra}]'",
        )


def check_installed(settings: ClusterSettings) -> None:
    """Check that all extras for a head with these settings are installed.

    Raises: Conflict if one is missing.
    """
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
    """Return the packages that a joining machine needs. All nodes of a Ray cluster need
    the same version of Ray."""
    return (f"ray=={version('ray')}",) if settings.engine == "ray" else ()
