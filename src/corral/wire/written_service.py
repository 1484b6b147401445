"""Conversion of the spec of a service to a document."""

from collections.abc import Iterator
from typing import Any, Final

from corral.domain.job import JobSpec
from corral.domain.service import ScaleRule, ServiceSpec
from corral.domain.units import written_duration
from corral.wire.engine_presets import ENGINE_PRESETS
from corral.wire.model_source import model_source_of
from corral.wire.service_document import default_continuation, default_names
from corral.wire.service_roles import written_roles
from corral.wire.spec_fields import SERVICE
from corral.wire.written_spec import plain_number, size_written, written_spec

DEFAULT: Final = ServiceSpec(
    name="default",  # type: ignore[arg-type]
    replica=JobSpec(name="default", run="true"),
    models=("default",),
)
# fields of the spec of a job that a service does not have
_OF_JOBS: Final = ("name", "max_duration", "retry", "array", "kind")


def written_service(spec: ServiceSpec) -> dict[str, Any]:
    """Return the document of the spec, without fields that have their default. The
    workdir is left out, because only the user has its folder. So is the command that an
    engine fills in."""
    document: dict[str, Any] = {"kind": SERVICE, "name": str(spec.name)}
    document |= dict(_model_fields(spec))
    if spec.engine:
        document["engine"] = spec.engine
    if spec.roles:
        is_filled_in = bool(spec.source)
        document["roles"] = written_roles(
            spec.replica, spec.roles, is_filled_in=is_filled_in
        )
        document["transfer"] = spec.transfer.value
    else:
        document["replicas"] = spec.replicas_text
    omitted = {*_OF_JOBS, "run"} if spec.source else _OF_JOBS
    job = written_spec(spec.replica)
    document |= {name: value for name, value in job.items() if name not in omitted}
    return document | dict(_service_fields(spec))


def _model_fields(spec: ServiceSpec) -> Iterator[tuple[str, Any]]:
    """Yield where the model lies, for an engine that fills in the command, or else its
    name, and the further names."""
    if spec.is_http:
        return
    model, *further_models = spec.models
    preset = ENGINE_PRESETS.get(spec.engine)
    if not spec.source:
        yield "model", model
    else:
        yield "model", spec.source
        source = model_source_of(spec.source)
        if spec.models == default_names(spec.name, source, preset):
            return
    if further_models or spec.source or spec.replica.model is not None:
        yield "models", further_models


def _service_fields(spec: ServiceSpec) -> Iterator[tuple[str, Any]]:
    if not spec.source or spec.probe != ENGINE_PRESETS[spec.engine].probe:
        yield "probe", spec.probe
    if scale := _scale(spec.scale):
        yield "scale", scale
    canary = spec.canary
    if canary.seconds == 0:
        yield "canary", "off"
    elif canary != DEFAULT.canary:
        yield (
            "canary",
            {
                "share": f"{canary.share * 100:g}%",
                "for": written_duration(canary.seconds),
            },
        )
    limits: dict[str, Any] = {}
    if spec.body_bytes != DEFAULT.body_bytes:
        limits["body"] = size_written(spec.body_bytes)
    if spec.deadline_seconds != DEFAULT.deadline_seconds:
        limits["deadline"] = written_duration(spec.deadline_seconds)
    if limits:
        yield "limits", limits
    if spec.drain_seconds != DEFAULT.drain_seconds:
        yield "drain", written_duration(spec.drain_seconds)
    if spec.sleeping:
        yield "sleeping", spec.sleeping
    # always written: the command is, too, and the default depends on it
    if spec.may_sleep:
        yield "park", spec.park.value
    if spec.continue_by is not default_continuation(spec.engine):
        yield "continues", spec.continue_by.value
    if spec.affinity is not DEFAULT.affinity:
        yield "affinity", spec.affinity.value
    yield from _caller_fields(spec)


def _caller_fields(spec: ServiceSpec) -> Iterator[tuple[str, Any]]:
    """Yield the adapters, the callers and the fallback."""
    if spec.adapters:
        yield "adapters", {adapter.name: adapter.source for adapter in spec.adapters}
    if spec.max_adapters:
        yield "max_adapters", spec.max_adapters
    if spec.allow is not None:
        yield "allow", {"users": [*spec.allow.users], "queues": [*spec.allow.queues]}
    if spec.fallback is not None:
        fallback = spec.fallback
        yield (
            "fallback",
            {
                "url": fallback.url,
                "model": fallback.model,
                "secret": fallback.secret,
            },
        )


def _scale(rule: ScaleRule) -> dict[str, Any]:
    amounts = {"queue": rule.queue, "rps": rule.rps, "tokens": rule.tokens}
    times = {
        "ttft_p90": rule.ttft_p90_seconds,
        "itl_p90": rule.itl_p90_seconds,
        "back_within": rule.back_within_seconds,
        "down_after": None
        if rule.down_after_seconds == ScaleRule().down_after_seconds
        else rule.down_after_seconds,
    }
    return {
        name: plain_number(value)
        for name, value in amounts.items()
        if value is not None
    } | {
        name: written_duration(seconds)
        for name, seconds in times.items()
        if seconds is not None
    }
