"""Conversion of the spec of a service to a document."""

from collections.abc import Iterator
from typing import Any, Final

from corral.domain.job import JobSpec
from corral.domain.service import ScaleRule, ServiceSpec
from corral.domain.units import written_duration
from corral.wire.service_document import default_continuation
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
    workdir is left out, because only the user has its folder. The command is always
    there, also that of an engine."""
    document: dict[str, Any] = {"kind": SERVICE, "name": str(spec.name)}
    model, *further_models = spec.models
    document["model"] = model
    if further_models:
        document["models"] = further_models
    if spec.engine:
        document["engine"] = spec.engine
    document["replicas"] = spec.replicas_text
    job = written_spec(spec.replica)
    document |= {name: value for name, value in job.items() if name not in _OF_JOBS}
    return document | dict(_service_fields(spec))


def _service_fields(spec: ServiceSpec) -> Iterator[tuple[str, Any]]:
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
    if spec.continue_by is not default_continuation(spec.engine):
        yield "continues", spec.continue_by.value


def _scale(rule: ScaleRule) -> dict[str, Any]:
    amounts = {"queue": rule.queue, "rps": rule.rps, "tokens": rule.tokens}
    times = {
        "ttft_p90": rule.ttft_p90_seconds,
        "itl_p90": rule.itl_p90_seconds,
        "back_within": rule.back_within_seconds,
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
