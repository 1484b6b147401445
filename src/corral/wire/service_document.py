"""Reading of the documents of services (`kind: service`) to values of the domain. All
problems are reported at once, as for the specs of jobs.

A service is served under its own name, and under that of its model: with an engine this
is org/name for hf://org/name, else the last part of its path; with a command of its own
it is the field `model`. The field `models` adds names; with an engine, it replaces the
model's name, because two services may have the same model, but not the same name for it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from corral.domain.ids import ServiceName
from corral.domain.resources import Shape
from corral.domain.service import CanaryRule, ContinueBy, ScaleRule, ServiceSpec
from corral.wire.engine_presets import (
    ENGINE_PRESETS,
    EngineArguments,
    EnginePreset,
    tensor_parallel_of,
)
from corral.wire.field_readers import WrongValue, shown
from corral.wire.model_source import (
    ModelSource,
    SourceKind,
    is_model_source,
    model_source_of,
)
from corral.wire.service_fields import (
    REPLICA_FIELDS,
    SERVICE_FORM,
    ServiceOwnFields,
)
from corral.wire.service_readers import is_model_name, model_name
from corral.wire.spec_fields import Spec
from corral.wire.spec_reader import Problem, cross_field_problems, read_fields, refusal
from corral.wire.submission import job_from_spec
from corral.wire.yaml_document import Document, Where

DEFAULT_PROBE: Final = "/health"
_MEASURES: Final = ("queue", "rps", "tokens")
_TIMES: Final = ("ttft_p90", "itl_p90")
_OWN_COMMAND: Final = "a command of its own: run: python server.py --port $CORRAL_PORT"


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedService:
    """A document and its validated spec. The document is what is sent; the head
    validates it again."""

    document: Document
    spec: ServiceSpec


def read_service(document: Document) -> ParsedService:
    """Read and validate the document of one service.

    Raises: SpecInvalid with every problem.
    """
    fields, problems = read_fields(document, SERVICE_FORM)
    if fields is not None:
        problems += [
            *_scale_problems(fields),
            *_model_problems(fields),
            *cross_field_problems(_job_fields(fields, fields.run or "")),
        ]
    if problems or fields is None:
        raise refusal(document, problems)
    return ParsedService(document=document, spec=_service_spec(fields))


def _job_fields(fields: ServiceOwnFields, run: str) -> Spec:
    """Return the spec of the job that a replica is."""
    replica_fields = {name: getattr(fields, name) for name in REPLICA_FIELDS}
    return Spec.model_construct(name=fields.name, run=run, **replica_fields)


def _scale_problems(fields: ServiceOwnFields) -> Iterator[Problem]:
    scale = fields.scale
    measures = [name for name in _MEASURES if getattr(scale, name) is not None]
    times = [name for name in _TIMES if getattr(scale, name) is not None]
    if len(measures) > 1:
        yield Problem(
            where=("scale", measures[1]),
            text=f"{measures[0]} is given, too; one measure decides the number of "
            "replicas",
            hint=f"remove {measures[0]} or {measures[1]}",
        )
    elif measures and times:
        yield Problem(
            where=("scale", times[0]),
            text=f"{measures[0]} is given, too; either a measure or times decide the "
            "number of replicas",
            hint=f"remove {measures[0]} or {times[0]}",
        )


def _model_problems(fields: ServiceOwnFields) -> Iterator[Problem]:
    preset = ENGINE_PRESETS.get(fields.engine or "")
    if preset is None and fields.run is None:
        yield Problem(
            where=("run",),
            text="is missing",
            hint=f"add an engine: engine: vllm, or {_OWN_COMMAND}",
        )
    elif preset is not None and fields.run is None:
        yield from _engine_problems(fields, preset)
    elif fields.model is not None:
        try:
            _check_served_model(fields.model, has_engine=preset is not None)
        except WrongValue as error:
            yield Problem(where=("model",), text=error.text, hint=error.hint)


def _check_served_model(model: str, *, has_engine: bool) -> None:
    """Check the model of a service that has a command of its own. Raises: WrongValue."""
    if not is_model_source(model):
        model_name(model, hint="write: model: NAME")
    elif has_engine:
        model_source_of(model)
    else:
        raise WrongValue(
            f"{shown(model)} is not a name: without an engine, model is the name to "
            "serve under",
            "add: engine: vllm, or write a name: model: NAME",
        )


def _engine_problems(
    fields: ServiceOwnFields, preset: EnginePreset
) -> Iterator[Problem]:
    """Yield the problems because of which the engine has no command."""
    own_shape, *others = _shapes(fields)
    places: list[tuple[Where, int]] = [(("nodes",), own_shape.nodes)]
    if own_shape.nodes == 1:
        places += [
            (("any_of", index, "nodes"), shape.nodes)
            for index, shape in enumerate(others)
        ]
    for where in [where for where, nodes in places if nodes > 1]:
        yield Problem(
            where=where,
            text=f"a replica of {fields.engine} on several nodes is not supported yet",
            hint=f"write: nodes: 1, or add {_OWN_COMMAND}",
        )
    if preset.serves_one_name and fields.models:
        yield Problem(
            where=("models",),
            text=f"{fields.engine} serves a model only under one name, that of the "
            "service",
            hint="remove models",
        )
    if fields.model is None:
        yield Problem(
            where=("model",),
            text="is missing",
            hint=f"add: {SERVICE_FORM.examples['model']}",
        )
        return
    try:
        source = model_source_of(fields.model)
        _check_source(fields, source, preset)
    except WrongValue as error:
        yield Problem(where=("model",), text=error.text, hint=error.hint)


def _check_source(
    fields: ServiceOwnFields, source: ModelSource, preset: EnginePreset
) -> None:
    """Check that the engine can read the model. Raises: WrongValue."""
    if source.kind not in preset.sources:
        sources = " or ".join(kind for kind in SourceKind if kind in preset.sources)
        raise WrongValue(
            f"{fields.engine} cannot load {shown(fields.model)}, only {sources}",
            "download the model in setup, then write its path, for example: "
            "model: ./model",
        )
    if source.is_relative and _job_fields(fields, "").workdir is None:
        raise WrongValue(
            f"{shown(fields.model)} is a path in the workdir, but the service has no "
            "workdir",
            "add: workdir: ., or write an absolute path: model: /data/model",
        )


def _shapes(fields: ServiceOwnFields) -> tuple[Shape, ...]:
    return job_from_spec(_job_fields(fields, "true"), fields.name, None, ()).shapes


def _service_spec(fields: ServiceOwnFields) -> ServiceSpec:
    preset = ENGINE_PRESETS.get(fields.engine or "")
    source = None
    if preset is not None and fields.model and is_model_source(fields.model):
        source = model_source_of(fields.model)
    names = _served_names(fields, source, preset)
    run = fields.run
    if run is None:
        assert preset is not None
        assert source is not None
        parallel = tensor_parallel_of(_shapes(fields))
        arguments = EngineArguments(model=source, names=names, tensor_parallel=parallel)
        run = preset.command(arguments)
    job = job_from_spec(_job_fields(fields, run), fields.name, None, ())
    min_replicas, max_replicas = fields.replicas
    return ServiceSpec(
        name=ServiceName(fields.name),
        replica=job,
        models=names,
        min_replicas=min_replicas,
        max_replicas=max_replicas,
        probe=fields.probe or (preset.probe if preset else DEFAULT_PROBE),
        engine=fields.engine or "",
        scale=_scale_rule(fields),
        canary=CanaryRule(share=fields.canary.share, seconds=fields.canary.seconds),
        body_bytes=fields.limits.body,
        deadline_seconds=fields.limits.deadline,
        drain_seconds=fields.drain,
        continue_by=fields.continues or default_continuation(fields.engine or ""),
    )


def _served_names(
    fields: ServiceOwnFields, source: ModelSource | None, preset: EnginePreset | None
) -> tuple[str, ...]:
    """Return the names under which requests reach the service, each of them once."""
    if source is None:
        names = (fields.model or fields.name, fields.name, *(fields.models or ()))
    elif fields.models is not None:
        names = (fields.name, *fields.models)
    elif preset is not None and preset.serves_one_name and fields.run is None:
        names = (fields.name,)
    else:
        names = (fields.name, *filter(is_model_name, [source.name]))
    return tuple(dict.fromkeys(names))


def default_continuation(engine: str) -> ContinueBy:
    """Return how streams of an engine are continued, unless the document says it."""
    preset = ENGINE_PRESETS.get(engine)
    return ContinueBy.NONE if preset is None else preset.continue_by


def _scale_rule(fields: ServiceOwnFields) -> ScaleRule:
    scale = fields.scale
    return ScaleRule(
        queue=scale.queue,
        rps=scale.rps,
        tokens=scale.tokens,
        ttft_p90_seconds=scale.ttft_p90,
        itl_p90_seconds=scale.itl_p90,
        back_within_seconds=scale.back_within,
    )
