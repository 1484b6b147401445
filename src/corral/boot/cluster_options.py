"""Requested settings of a cluster, from the command line or from environment variables."""

from dataclasses import dataclass
from typing import Any

from corral.boot.declared_settings import SETTINGS


@dataclass(frozen=True, slots=True, init=False)
class ClusterOptions:
    """Requested settings of a cluster.

    A setting without a value stays unchanged or, for a new cluster, is chosen by this
    machine.

    Args:
        values: Settings by name. None means that the setting has no value.
    Raises: TypeError for an unknown name of a setting.
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
        """Return the requested value of a setting; None if the setting has no value.

        Raises: KeyError for an unknown name of a setting.
        """
        if name not in SETTINGS:
            raise KeyError(name)
        return self.given.get(name)

    def with_values(self, **values: Any) -> "ClusterOptions":
        """Return a request in which these settings replace those of this request."""
        return ClusterOptions(**(self.given | values))
