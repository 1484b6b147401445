"""Scheduling policies by name, and policies from a TOML file."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import isfinite
from pathlib import Path
from tomllib import TOMLDecodeError, loads
from typing import Any

from corral.domain.errors import NotFound, Refusal, SpecInvalid, Unsupported
from corral.domain.queue_policy import Policy as QueuePolicy
from corral.schedule.columns.order import DEFAULT, POLICIES, ColumnPolicy, Named


def chosen(
    names: Sequence[str], config: Path | None, restart_seconds: float
) -> dict[str, Named]:
    """Return the policies of these names. Without names, return all policies of the
    file `config`; without a file, the default policy.

    Raises: NotFound for an unknown name, Unsupported for a policy that only queues
    have, SpecInvalid for a file that does not hold policies.
    """
    own_policies = read_policies(config) if config else {}
    known_policies = dict(POLICIES) | own_policies
    asked_names = list(dict.fromkeys(names)) or list(own_policies) or [DEFAULT]
    for name in asked_names:
        if name not in known_policies:
            raise _unknown_policy_error(name, list(known_policies))
    return {
        name: replace(
            known_policies[name],
            policy=known_policies[name].policy._replace(
                restart_seconds=restart_seconds
            ),
        )
        for name in asked_names
    }


def _unknown_policy_error(name: str, known: Sequence[str]) -> Refusal:
    if name in set(QueuePolicy):
        return Unsupported(
            f"the policy {name} orders jobs of several queues, and cannot be used without them",
            hint=f"write policy: {name} for a queue in a file with kind: queues, and run: "
            "corral simulate TRACE --queues FILE",
        )
    refused = NotFound("policy", name, known)
    refused.hint = f"{refused.hint} use one of: {', '.join(known)}".strip()
    return refused


def read_policies(path: Path) -> dict[str, Named]:
    """Return the policies of a TOML file. Each is based on a named policy, and changes
    only the numbers that it gives."""
    try:
        tables = loads(path.read_text())
        return {name: _policy_from_table(table) for name, table in tables.items()}
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise SpecInvalid(
            f"{path} cannot be read: {reason}", hint=f"run: ls -ld {path}"
        ) from error
    except (TOMLDecodeError, ValueError, TypeError, AttributeError) as error:
        hint = 'write, for example: [dear] like = "default" price = 2.0'
        raise SpecInvalid(
            f"{path} is not a file of policies: {error}", hint=hint
        ) from error


def _policy_from_table(table: Mapping[str, Any]) -> Named:
    like = table.get("like", DEFAULT)
    if like not in POLICIES:
        raise ValueError(f"like is {like!r}, which is not a policy")
    base = POLICIES[like]
    numbers = {key: value for key, value in table.items() if key != "like"}
    for key, value in numbers.items():
        if key not in ColumnPolicy._fields or key in ("rule", "predicts"):
            raise ValueError(f"{key!r} is not a number of a policy")
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"{key} is {value!r}, not a number")
        if not isfinite(value):
            raise ValueError(f"{key} is {value!r}, not a finite number")
    values: dict[str, Any] = {key: float(value) for key, value in numbers.items()}
    changed = base.policy._replace(**values)
    return replace(
        base, policy=changed, with_limits="" if numbers else base.with_limits
    )
