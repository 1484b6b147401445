"""Roles in the document of a service: groups of replicas that prefill and decode apart."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from corral.domain.job import JobSpec
from corral.domain.role_rule import RoleRule
from corral.domain.serving_roles import APART, CacheTransfer, ServingRole
from corral.wire.engine_presets import (
    ENGINE_PRESETS,
    EngineArguments,
    EnginePreset,
    tensor_parallel_of,
)
from corral.wire.role_fields import RoleFields
from corral.wire.service_fields import SERVICE_FORM, ServiceOwnFields
from corral.wire.spec_reader import Problem
from corral.wire.submission import resources_of
from corral.wire.written_spec import resources_written

EXAMPLE: Final = SERVICE_FORM.examples["roles"]
_SLEEPING: Final = "replicas of a service with roles do not sleep"


def roles_of(fields: ServiceOwnFields) -> Mapping[ServingRole, RoleFields]:
    """Return the groups of replicas of a document; empty without roles."""
    if fields.roles is None:
        return {}
    return {role: getattr(fields.roles, role.value) for role in APART}


def answering_range(fields: ServiceOwnFields) -> tuple[int, int]:
    """Return (fewest, most) of the replicas that answer requests."""
    return fields.replicas if fields.roles is None else fields.roles.decode.replicas


def command_of(fields: ServiceOwnFields) -> str | None:
    """Return the document's own command: that of the service, or without it, that of
    its decode replicas if each role has one. None: an engine fills it in."""
    roles = roles_of(fields)
    if fields.run is not None or not roles or fields.engine is not None:
        return fields.run
    runs = [role.run for role in roles.values()]
    return runs[-1] if all(runs) else None


def transfer_of(fields: ServiceOwnFields) -> CacheTransfer:
    """Return how KV caches get from prefill to decode replicas: as the document says,
    else as the engine does it."""
    if fields.roles is None or fields.transfer is not CacheTransfer.NONE:
        return fields.transfer
    preset = ENGINE_PRESETS.get(fields.engine or "")
    return CacheTransfer.NONE if preset is None else preset.transfer


def role_problems(fields: ServiceOwnFields) -> Iterator[Problem]:
    """Yield the problems because of which the replicas cannot prefill and decode
    apart."""
    if fields.roles is None:
        if fields.transfer is not CacheTransfer.NONE:
            yield Problem(
                where=("transfer",),
                text="needs roles: without them no cache is transferred",
                hint=f"remove transfer, or add: {EXAMPLE}",
            )
        return
    if "replicas" in fields.model_fields_set:
        yield Problem(
            where=("replicas",),
            text="is not allowed with roles, which have replicas of their own",
            hint=f"remove replicas, and write: {EXAMPLE}",
        )
    yield from _transfer_problems(fields)
    yield from _sleep_problems(fields)
    for role, group in roles_of(fields).items():
        yield from _group_problems(fields, role, group)


def _transfer_problems(fields: ServiceOwnFields) -> Iterator[Problem]:
    preset = ENGINE_PRESETS.get(fields.engine or "")
    has_preset = preset is not None and any(
        fields.run is None and group.run is None for group in roles_of(fields).values()
    )
    able = [name for name, engine in ENGINE_PRESETS.items() if engine.transfer]
    if preset is not None and has_preset and not preset.transfer:
        yield Problem(
            where=("roles",),
            text=f"{fields.engine} has no connector that hands the KV cache of a prompt "
            f"over; these engines have one: {', '.join(able)}",
            hint=f"remove roles, or write: engine: {able[0]}",
        )
    elif not transfer_of(fields):
        yield Problem(
            where=("transfer",),
            text="is missing",
            hint="add: transfer: shared, or the engine whose transfer the commands use: "
            f"{', '.join(able)}",
        )
    elif preset is not None and has_preset and transfer_of(fields) != preset.transfer:
        yield Problem(
            where=("transfer",),
            text=f"replicas of {fields.engine} transfer by {preset.transfer.value}, "
            f"not by {fields.transfer.value}",
            hint="remove transfer, or add a command of its own: run: ...",
        )


def _sleep_problems(fields: ServiceOwnFields) -> Iterator[Problem]:
    for where, is_given in (
        (("sleeping",), fields.sleeping > 0),
        (("park",), fields.park is not None and fields.park.value != "none"),
        (("scale", "back_within"), fields.scale.back_within is not None),
    ):
        if is_given:
            hint = f"remove {where[-1]} or roles"
            yield Problem(where=where, text=_SLEEPING, hint=hint)


def _group_problems(
    fields: ServiceOwnFields, role: ServingRole, group: RoleFields
) -> Iterator[Problem]:
    where = ("roles", role.value)
    has_shape = group.nodes is not None or group.resources is not None
    has_more_shapes = bool(getattr(fields, "any_of", None))
    if has_shape and has_more_shapes:
        yield Problem(
            where=(*where, "nodes" if group.resources is None else "resources"),
            text="any_of gives other shapes for the replicas, too",
            hint=f"remove any_of, or nodes and resources of {role.value}",
        )
    is_filled_in = fields.run is None and group.run is None
    if fields.engine is not None and is_filled_in and (group.nodes or 1) > 1:
        yield Problem(
            where=(*where, "nodes"),
            text=f"a replica of {fields.engine} on several nodes is not supported yet",
            hint="write: nodes: 1, or add a command of its own: run: ...",
        )


def role_rules(
    fields: ServiceOwnFields,
    job: JobSpec,
    preset: EnginePreset | None,
    arguments: EngineArguments | None,
) -> tuple[RoleRule, ...]:
    """Return the groups of replicas, each with what its replicas run.

    Args:
        job: What a replica without a role would run.
        arguments: What the engine's command depends on; None: the document has its own.
    """
    return tuple(
        _role_rule(role, group, job, preset, arguments)
        for role, group in roles_of(fields).items()
    )


def _role_rule(
    role: ServingRole,
    group: RoleFields,
    job: JobSpec,
    preset: EnginePreset | None,
    arguments: EngineArguments | None,
) -> RoleRule:
    low, high = group.replicas
    replica = replace(
        job,
        nodes=group.nodes or job.nodes,
        resources=job.resources
        if group.resources is None
        else resources_of(group.resources),
        env=tuple({**dict(job.env), **dict(group.env)}.items()),
        run=group.run or job.run,
    )
    if group.run is None and preset is not None and arguments is not None:
        parallel = tensor_parallel_of(replica.shapes)
        command = preset.command(
            replace(arguments, role=role, tensor_parallel=parallel)
        )
        replica = replace(replica, run=command)
    return RoleRule(
        role=role,
        min_replicas=low,
        max_replicas=high,
        replica=replica,
        has_own_command=group.run is not None and arguments is not None,
    )


def written_roles(
    job: JobSpec, rules: tuple[RoleRule, ...], *, is_filled_in: bool
) -> dict[str, Any]:
    """Return the groups as a document has them: how many replicas, and what differs
    from the service.

    Args:
        job: What a replica without a role would run.
        is_filled_in: The engine fills in commands that the document does not have.
    """
    return {
        rule.role.value: dict(_written_role(job, rule, is_filled_in=is_filled_in))
        for rule in rules
    }


def _written_role(
    job: JobSpec, rule: RoleRule, *, is_filled_in: bool
) -> Iterator[tuple[str, Any]]:
    replica = rule.replica
    yield "replicas", rule.replicas_text
    if replica.nodes != job.nodes:
        yield "nodes", replica.nodes
    if replica.resources != job.resources:
        yield "resources", resources_written(replica.resources)
    variables = dict(job.env)
    env = {name: text for name, text in replica.env if variables.get(name) != text}
    if env:
        yield "env", env
    has_command = rule.has_own_command if is_filled_in else replica.run != job.run
    if has_command:
        yield "run", replica.run
