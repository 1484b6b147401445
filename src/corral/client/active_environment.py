"""The Python environment that is active in the process that submits a job."""

import os
from collections.abc import Mapping
from typing import Any, Final

VARIABLES: Final = ("VIRTUAL_ENV", "CONDA_PREFIX")  # of venv and virtualenv, of conda


def active_environment(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the variable that names the active environment, with its value; an empty
    dict if no environment is active."""
    for name in VARIABLES:
        folder = environ.get(name, "")
        if folder.startswith("/") and os.access(f"{folder}/bin/python", os.X_OK):
            return {name: folder}
    return {}


def with_active_environment(
    value: dict[str, Any], active: Mapping[str, str]
) -> dict[str, Any]:
    """Return the spec with the active Python environment in its variables.

    The spec stays unchanged if it names an environment or a PATH, has an image, or runs
    on a Ray cluster of its own (`kind: ray`): these determine the Python.
    """
    own_variables = value.get("env") or {}
    has_own = value.get("image") or value.get("kind") == "ray"
    if not active or has_own or {"PATH", *VARIABLES} & set(own_variables):
        return value
    return {**value, "env": {**active, **own_variables}}
