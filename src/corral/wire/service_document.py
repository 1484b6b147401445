"""Reading of the documents of services (`kind: service`) to values of the domain. All
problems are reported at once, as for the specs of jobs.

A service is served under its own name, and under that of its model: with an engine this
is org/name for hf://org/name, else the last part of its path; with a command of its own
it is the field `model`. The field `models` adds names; with an engine, it replaces the
model's name, because two services may have the same model, but not the same name for it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from corral.domain.ids import ServiceName
from corral.domain.job import ModelCheck
from corral.domain.lending import ParkBy
from corral.domain.resources import Shape
from corral.domain.service import CanaryRule, ScaleRule, ServiceSpec
from corral.domain.service_access import CallAccess, FallbackRule
from corral.domain.service_affinity import Affinity
from corral.domain.stream_continuation import ContinueBy
from corral.wire.engine_presets import (
    ENGINE_PRESETS,
    EngineArguments,
    EnginePreset,
    tensor_parallel_of,
)
from corral.wire.field_readers import WrongValue, shown
from corral.wire.model_source import (
    ModelSource,
    is_model_source,
    model_source_of,
)
from corral.wire.service_adapters import adapter_problems, max_adapters_of
from corral.wire.service_fields import (
    REPLICA_FIELDS,
    SERVICE_FORM,
    AllowFields,
    FallbackFields,
    ServiceOwnFields,
)
from corral.wire.service_readers import is_model_name, model_name
from corral.wire.service_roles import (
    answering_range,
    command_of,
    role_problems,
    role_rules,
    transfer_of,
)
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
            *_sleep_problems(fields),
            *_affinity_problems(fields),
            *_model_problems(fields),
            *adapter_problems(fields),
            *role_problems(fields),
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


def _sleep_problems(fields: ServiceOwnFields) -> Iterator[Problem]:
    preset = ENGINE_PRESETS.get(fields.engine or "")
    has_calls = preset is not None and preset.sleep_calls is not None
    most = fields.replicas[1]
    if fields.sleeping > most:
        yield Problem(
            where=("sleeping",),
            text=f"{fields.sleeping:,} is more than all replicas, {most:,}",
            hint=f"write a larger range: replicas: 1..{fields.sleeping + 1}",
        )
    if fields.park is ParkBy.ENGINE and not has_calls:
        able = [name for name, engine in ENGINE_PRESETS.items() if engine.sleep_calls]
        yield Problem(
            where=("park",),
            text=f"{fields.engine or 'a command of its own'} cannot sleep; these engines "
            f"can: {', '.join(able)}",
            hint="write: park: cache",
        )
    if fields.park is ParkBy.NONE and _asks_to_sleep(fields):
        yield Problem(
            where=("park",),
            text="without it replicas do not sleep, and lend no GPUs",
            hint="write: park: cache, or remove sleeping and back_within",
        )
    is_exclusive = bool(getattr(fields, "exclusive", False))
    if is_exclusive and park_of(fields) is not ParkBy.NONE:
        yield Problem(
            where=("exclusive",),
            text="nodes of a replica that sleeps are lent to other jobs",
            hint="remove exclusive, or sleeping, park and back_within",
        )


def _affinity_problems(fields: ServiceOwnFields) -> Iterator[Problem]:
    preset = ENGINE_PRESETS.get(fields.engine or "")
    if fields.affinity is not Affinity.EXACT or preset is None:
        return
    # a command of its own may publish events
    if fields.run is None and not preset.has_kv_events:
        able = [name for name, engine in ENGINE_PRESETS.items() if engine.has_kv_events]
        yield Problem(
            where=("affinity",),
            text=f"{fields.engine} does not publish the events of its cache; these "
            f"engines do: {', '.join(able)}",
            hint="write: affinity: prompt",
        )


def _asks_to_sleep(fields: ServiceOwnFields) -> bool:
    return fields.sleeping > 0 or fields.scale.back_within is not None


def park_of(fields: ServiceOwnFields) -> ParkBy:
    """Return what a sleeping replica keeps: as the document says; else the best that
    the engine can, if replicas are to sleep at all."""
    if fields.park is not None:
        return fields.park
    if not _asks_to_sleep(fields):
        return ParkBy.NONE
    preset = ENGINE_PRESETS.get(fields.engine or "")
    return ParkBy.CACHE if preset is None or fields.run is not None else preset.park


def _model_problems(fields: ServiceOwnFields) -> Iterator[Problem]:
    preset = ENGINE_PRESETS.get(fields.engine or "")
    if preset is None and command_of(fields) is None:
        yield Problem(
            where=("run",),
            text="is missing",
            hint=f"add an engine: engine: vllm, or {_OWN_COMMAND}",
        )
    elif preset is not None and fields.run is None:
        yield from _engine_problems(fields, preset)
    elif fields.model is not None:
        try:
            _check_served_model(fields.model)
        except WrongValue as error:
            yield Problem(where=("model",), text=error.text, hint=error.hint)


def _check_served_model(model: str) -> None:
    """Check the model of a service that has a command of its own: where it lies, or the
    name to serve under. Raises: WrongValue."""
    if is_model_source(model):
        model_source_of(model)
    else:
        model_name(model, hint="write: model: NAME")


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
        _check_source(fields, source)
    except WrongValue as error:
        yield Problem(where=("model",), text=error.text, hint=error.hint)


def _check_source(fields: ServiceOwnFields, source: ModelSource) -> None:
    """Check that the engine can read the model. Raises: WrongValue."""
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
    if fields.model and is_model_source(fields.model):
        source = model_source_of(fields.model)
    names = _served_names(fields, source, preset)
    run, arguments = command_of(fields), None
    if run is None:
        assert preset is not None
        assert source is not None
        arguments = _engine_arguments(fields, preset, source, names)
        run = preset.command(arguments)
    job = job_from_spec(_job_fields(fields, run), fields.name, None, ())
    if source is not None:
        job = replace(job, model=fields.model)
    min_replicas, max_replicas = answering_range(fields)
    park = park_of(fields)
    return ServiceSpec(
        name=ServiceName(fields.name),
        replica=job,
        models=names,
        min_replicas=min_replicas,
        max_replicas=max_replicas,
        probe=fields.probe or (preset.probe if preset else DEFAULT_PROBE),
        engine=fields.engine or "",
        source=(fields.model or "") if command_of(fields) is None else "",
        scale=_scale_rule(fields),
        canary=CanaryRule(share=fields.canary.share, seconds=fields.canary.seconds),
        body_bytes=fields.limits.body,
        deadline_seconds=fields.limits.deadline,
        drain_seconds=fields.drain,
        continue_by=fields.continues or default_continuation(fields.engine or ""),
        sleeping=fields.sleeping,
        park=park,
        sleep_calls=preset.sleep_calls
        if preset is not None and park is ParkBy.ENGINE
        else None,
        model_check=ModelCheck(names=names, is_listed=preset.lists_its_model)
        if preset is not None
        else None,
        adapters=fields.adapters,
        max_adapters=max_adapters_of(fields),
        allow=_call_access(fields.allow),
        fallback=_fallback_rule(fields.fallback),
        affinity=fields.affinity,
        is_http=preset is None and not (fields.model or fields.models),
        roles=role_rules(fields, job, preset, arguments),
        transfer=transfer_of(fields),
    )


def _engine_arguments(
    fields: ServiceOwnFields,
    preset: EnginePreset,
    source: ModelSource,
    names: tuple[str, ...],
) -> EngineArguments:
    return EngineArguments(
        model=source,
        names=names,
        tensor_parallel=tensor_parallel_of(_shapes(fields)),
        sleeps=park_of(fields) is ParkBy.ENGINE,
        max_adapters=max_adapters_of(fields),
        has_kv_events=fields.affinity is Affinity.EXACT,
        adapters=[
            model_source_of(adapter.source)
            for adapter in fields.adapters
            if preset.has_fixed_adapters
        ],
        fetched_adapters=[
            adapter.name for adapter in fields.adapters if adapter.is_fetched
        ],
    )


def _call_access(allow: AllowFields | None) -> CallAccess | None:
    if allow is None:
        return None
    return CallAccess(users=allow.users, queues=allow.queues)


def _fallback_rule(fallback: FallbackFields | None) -> FallbackRule | None:
    if fallback is None:
        return None
    return FallbackRule(url=fallback.url, model=fallback.model, secret=fallback.secret)


def _served_names(
    fields: ServiceOwnFields, source: ModelSource | None, preset: EnginePreset | None
) -> tuple[str, ...]:
    """Return the names under which requests reach the service, each of them once."""
    if source is None:
        names = (fields.model or fields.name, fields.name, *(fields.models or ()))
    elif fields.models is not None:
        names = (fields.name, *fields.models)
    else:
        has_preset = preset is not None and fields.run is None
        return default_names(fields.name, source, preset if has_preset else None)
    return tuple(dict.fromkeys(names))


def default_names(
    service: str, source: ModelSource, preset: EnginePreset | None
) -> tuple[str, ...]:
    """Return the names under which requests reach a service whose document does not give
    them, each of them once.

    Args:
        preset: Engine that fills in the command; None without one.
    """
    if preset is not None and preset.serves_one_name:
        return (service,)
    return tuple(dict.fromkeys((service, *filter(is_model_name, [source.name]))))


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
        down_after_seconds=scale.down_after,
    )
