"""Conversion of the spec of an existing job to a document, which can be submitted again
to run the same job."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from corral.domain.elastic import Elastic
from corral.domain.hang import WatchRule
from corral.domain.job import CheckpointRule, JobSpec, TokenScope
from corral.domain.keep_rule import DEFAULT_LAST, KeepRule
from corral.domain.placement_constraints import AccountConstraint, Constraint, PlaceRule
from corral.domain.resources import Resources
from corral.domain.units import MILLIS_PER_CPU, MILLIS_PER_GPU, written_duration
from corral.wire.field_readers import OWN_TOKEN
from corral.wire.job_parts import ForecastView
from corral.wire.watch_rule import OFF

SIZES: Final = (
    ("GiB", 2**30),
    ("GB", 10**9),
    ("MiB", 2**20),
    ("MB", 10**6),
    ("KiB", 2**10),
)
DEFAULT: Final = JobSpec(name="default", run="true")
Document = dict[str, Any]


class WrittenSpec(ForecastView):
    """A job's spec as a document. `has_workdir`: the job ran in a workdir, which is not
    part of the document."""

    spec: dict[str, Any]
    has_workdir: bool


def written_spec(spec: JobSpec) -> Document:
    """Return the document of the spec, without fields that have their default.

    The workdir is left out, too, because only the user has its folder. A job of an
    array is written as an array with this one index.
    """
    document: Document = {"name": spec.name}
    if spec.array_index is not None:
        name = spec.name.removesuffix(f"_{spec.array_index}")
        document = {"name": name, "array": str(spec.array_index)}
    if spec.ray:
        document["kind"] = "ray"
    document |= dict(_resource_fields(spec))
    document |= dict(_scheduling_fields(spec))
    document |= _placement_fields(spec.place)
    document |= dict(_lifecycle_fields(spec))
    return {**document, "run": spec.run}


def _elastic_written(elastic: Elastic) -> dict[str, Any]:
    document: dict[str, Any] = {
        "min_nodes": elastic.min_nodes,
        "max_nodes": elastic.max_nodes,
    }
    return document


def _resource_fields(spec: JobSpec) -> Iterator[tuple[str, Any]]:
    if spec.nodes != DEFAULT.nodes:
        yield "nodes", spec.nodes
    if resources := resources_written(spec.resources):
        yield "resources", resources
    if spec.any_of:
        forms = [
            {"nodes": shape.nodes, "resources": resources_written(shape.resources)}
            for shape in spec.any_of
        ]
        yield "any_of", forms
    if spec.elastic is not None:
        yield "elastic", _elastic_written(spec.elastic)
    if spec.per != DEFAULT.per:
        yield "per", spec.per.value
    if spec.image is not None:
        yield "image", spec.image
    if spec.model is not None:
        yield "model", spec.model
    if spec.setup is not None:
        yield "setup", spec.setup
    if spec.env:
        yield "env", dict(spec.env)
    yield from _secret_fields(spec)


def _secret_fields(spec: JobSpec) -> Iterator[tuple[str, Any]]:
    """Yield the fields for secrets. The job's own token is requested by `token`, or is
    implied by a Ray program."""
    secret_names = [name for name in spec.secrets if name != OWN_TOKEN]
    if secret_names:
        yield "secrets", secret_names
    if OWN_TOKEN in spec.secrets and not (spec.ray and spec.token == TokenScope.OWN):
        yield "token", spec.token.value


def resources_written(needed: Resources) -> Document:
    """Return the resources of one node as a document has them."""
    document: Document = {}
    if needed.gpu_millis or needed.gpu_type:
        gpus = plain_number(needed.gpu_millis / MILLIS_PER_GPU)
        document["gpu"] = f"{needed.gpu_type}:{gpus}" if needed.gpu_type else gpus
    if needed.cpu_millis:
        document["cpu"] = plain_number(needed.cpu_millis / MILLIS_PER_CPU)
    if needed.memory_bytes:
        document["memory"] = size_written(needed.memory_bytes)
    return document


def plain_number(value: float) -> int | float:
    """Return a whole number as an int, as people write it."""
    return int(value) if value.is_integer() else value


def size_written(size_bytes: int) -> str:
    """Return the size exactly, as text with the largest unit that fits."""
    for unit, size in SIZES:
        if size_bytes % size == 0:
            return f"{size_bytes // size}{unit}"
    return f"{size_bytes}B"


def _scheduling_fields(spec: JobSpec) -> Iterator[tuple[str, Any]]:
    if spec.queue != DEFAULT.queue:
        yield "queue", str(spec.queue)
    if spec.priority:
        yield "priority", spec.priority
    if spec.preemptible:
        yield "preemptible", True
    if spec.max_duration_seconds is not None:
        yield "max_duration", written_duration(spec.max_duration_seconds)
    warn: Document = {}
    if spec.warn.signal is not None:
        warn["signal"] = spec.warn.signal
    if spec.warn.before_seconds is not None:
        warn["before"] = written_duration(spec.warn.before_seconds)
    if warn:
        yield "warn", warn
    if spec.grace_seconds != DEFAULT.grace_seconds:
        yield "grace", written_duration(spec.grace_seconds)
    if spec.self_stop_seconds is not None:
        yield "self_stop", written_duration(spec.self_stop_seconds)
    if spec.disconnect is not None:
        yield "disconnect", spec.disconnect.value
    if not spec.watch:
        yield "watch", False
    elif spec.hang != DEFAULT.hang:
        yield "watch", _watch(spec.hang)


def _watch(rule: WatchRule) -> Document:
    if not rule.is_on:
        return {"hang": OFF}
    document: Document = {}
    if rule.bound_seconds is not None:
        document["hang"] = written_duration(rule.bound_seconds)
    if rule.act != DEFAULT.hang.act:
        document["act"] = rule.act.value
    return document


def _placement_fields(place: PlaceRule) -> Document:
    """Return the placement fields. Constraints that the head has added for the owner's
    account are left out."""
    document: Document = {}
    constraints = [
        constraint
        for constraint in place.constraints
        if not isinstance(constraint, AccountConstraint)
    ]
    if constraints:
        document["constraints"] = {
            constraint.label: _constraint_values(constraint)
            for constraint in constraints
        }
    if place.topology.is_asked:
        topology = {"mode": place.topology.mode.value}
        if place.topology.mode == "require":
            topology["within"] = place.topology.within.value
        document["topology"] = topology
    if place.exclusive:
        document["exclusive"] = True
    if place.apart_from:
        document["apart_from"] = list(place.apart_from)
    return document


def _constraint_values(constraint: Constraint) -> list[str] | Mapping[str, list[str]]:
    values = list(constraint.values)
    return {"not": values} if constraint.negated else values


def _lifecycle_fields(spec: JobSpec) -> Iterator[tuple[str, Any]]:
    if spec.checkpoint is not None:
        yield "checkpoint", _checkpoint(spec.checkpoint)
    retry = {"infra": spec.retry.infra, "user": spec.retry.user}
    if spec.retry != DEFAULT.retry:
        yield "retry", retry
    if spec.after:
        jobs = {
            (dependency.of or str(dependency.job), dependency.on.value): None
            for dependency in spec.after
        }
        yield "after", [{"job": job, "on": on} for job, on in jobs]


def _checkpoint(rule: CheckpointRule) -> Document:
    document: Document = {"path": rule.path} if rule.path else {}
    if rule.source:
        document["from"] = rule.source
    if rule.interval_seconds is not None:
        document["interval"] = written_duration(rule.interval_seconds)
    keep = _keep(rule.keep_rule)
    if keep != DEFAULT_LAST:
        document["keep"] = keep
    if not rule.local:
        document["local"] = "off"
    if rule.bandwidth_bytes is not None:
        document["bandwidth"] = f"{rule.bandwidth_bytes}B/s"
    return document


def _keep(rule: KeepRule) -> int | Document:
    """Return the rule of saves that stay as its short form, if it has one."""
    if rule.every_seconds is None and rule.best is None:
        return rule.last
    document: Document = {"last": rule.last}
    if rule.every_seconds is not None:
        document["every"] = written_duration(rule.every_seconds)
    if rule.best is not None:
        document["best"] = {
            "metric": rule.best.metric,
            "count": rule.best.count,
            "goal": rule.best.goal.value,
        }
    return document
