"""Policies by name, and those of a TOML file."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tomllib import TOMLDecodeError, loads
from typing import Any

from corral.domain.errors import NotFound, SpecInvalid
from corral.schedule.order import DEFAULT, POLICIES, Named, Policy


def chosen(names: Sequence[str], config: Path | None, restart_seconds: float) -> dict[str, Named]:
    """The policies of these names; of none, all of the file, and without a file the default.

    Raises: NotFound for an unknown name, SpecInvalid for a file that is none of policies.
    """
    own = read_policies(config) if config else {}
    known = dict(POLICIES) | own
    asked = list(dict.fromkeys(names)) or list(own) or [DEFAULT]
    for name in asked:
        if name not in known:
            raise NotFound("policy", name, list(known), see="corral simulate --help")
    return {
        name: replace(
            known[name], policy=known[name].policy._replace(restart_seconds=restart_seconds)
        )
        for name in asked
    }


def read_policies(path: Path) -> dict[str, Named]:
    """Policies of a TOML file; each is like a named one, but for the numbers that it gives."""
    try:
        tables = loads(path.read_text())
        return {name: _policy(table) for name, table in tables.items()}
    except (OSError, TOMLDecodeError, ValueError, TypeError, AttributeError) as error:
        hint = 'write, for example: [dear] like = "default" price = 2.0'
        raise SpecInvalid(f"{path} is not a file of policies: {error}", hint=hint) from error


def _policy(table: Mapping[str, Any]) -> Named:
    like = table.get("like", DEFAULT)
    if like not in POLICIES:
        raise ValueError(f"no policy is called {like!r}")
    base = POLICIES[like]
    numbers = {key: value for key, value in table.items() if key != "like"}
    for key, value in numbers.items():
        if key not in Policy._fields or key in ("rule", "predicts"):
            raise ValueError(f"a policy has no number {key!r}")
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"{key} is {value!r}, not a number")
    values: dict[str, Any] = {key: float(value) for key, value in numbers.items()}
    changed = base.policy._replace(**values)
    return replace(base, policy=changed, with_limits="" if numbers else base.with_limits)
