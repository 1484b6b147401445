"""Requested settings of a cluster, as typed or as environment variables set them."""

from dataclasses import dataclass
from typing import Any

from corral.boot.declared_settings import SETTINGS


@dataclass(frozen=True, slots=True, init=False)
class ClusterOptions:
    """Requested settings of a cluster.

    A setting without a value is unchanged, or chosen by this machine.

    Args:
        values: Settings by name; None is no value.

    Raises: TypeError for a name that no setting has.
    """

    given: dict[str, Any]

    def __init__(self, **values: Any) -> None:
        if unknown := values.keys() - SETTINGS.keys():
            raise TypeError(f"no setting of a cluster: {', '.join(sorted(unknown))}")
        given_values = {
            name: values[name] for name in SETTINGS if values.get(name) is not None
        }
        object.__setattr__(self, "given", given_values)

    def value(self, name: str) -> Any:
        """Return the requested value of a setting; None without one.

        Raises: KeyError for a name that no setting has.
        """
        if name not in SETTINGS:
            raise KeyError(name)
        return self.given.get(name)

    def with_values(self, **values: Any) -> "ClusterOptions":
        """Return the request with these settings in place of its own."""
        return ClusterOptions(**(self.given | values))
