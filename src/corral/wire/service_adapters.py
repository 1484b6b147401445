"""Adapters in the document of a service: what its engine can load."""

from collections.abc import Iterator
from typing import Final

from corral.domain.service_access import fetched_adapters
from corral.wire.engine_presets import ENGINE_PRESETS, EnginePreset
from corral.wire.field_readers import WrongValue, shown
from corral.wire.model_source import SourceKind, model_source_of
from corral.wire.service_fields import ServiceOwnFields
from corral.wire.spec_reader import Problem

ADAPTER_HINT: Final = "write its path: adapters: {legal: /data/legal-lora}"


def max_adapters_of(fields: ServiceOwnFields) -> int:
    """Return how many adapters a replica may have loaded; 0: it can load none."""
    if fields.max_adapters is not None:
        return fields.max_adapters
    preset = ENGINE_PRESETS.get(fields.engine or "")
    return preset.max_adapters if preset is not None and fields.adapters else 0


def adapter_problems(fields: ServiceOwnFields) -> Iterator[Problem]:
    """Yield the problems because of which a replica cannot serve the adapters."""
    if not fields.adapters and fields.max_adapters is None:
        return
    preset = ENGINE_PRESETS.get(fields.engine or "")
    where = "adapters" if fields.adapters else "max_adapters"
    if preset is None or not preset.adapter_sources:
        engines = [name for name in ENGINE_PRESETS if _has_adapters(name)]
        yield Problem(
            where=(where,),
            text="needs an engine that loads adapters",
            hint=f"write: engine: {engines[0]}, or: engine: {engines[1]}",
        )
        return
    most = max_adapters_of(fields)
    if preset.has_fixed_adapters and len(fields.adapters) > most:
        yield Problem(
            where=("adapters",),
            text=f"{len(fields.adapters)} adapters are given, but a replica of "
            f"{fields.engine} loads all of them, and may load {most}",
            hint=f"remove some, or write: max_adapters: {len(fields.adapters)}",
        )
    elif fetched_adapters(fields.adapters) and len(fields.adapters) > most:
        yield Problem(
            where=("adapters",),
            text=f"{len(fields.adapters)} adapters are given, but a replica loads {most} "
            "at once, and none is unloaded where the nodes fetch one from S3",
            hint=f"remove some, or write: max_adapters: {len(fields.adapters)}",
        )
    yield from _name_problems(fields)
    for adapter in fields.adapters:
        try:
            _check_source(fields, preset, adapter.source)
        except WrongValue as error:
            yield Problem(
                where=("adapters", adapter.name), text=error.text, hint=error.hint
            )


def _has_adapters(engine: str) -> bool:
    return bool(ENGINE_PRESETS[engine].adapter_sources)


def _name_problems(fields: ServiceOwnFields) -> Iterator[Problem]:
    """Yield the adapters that have a name of the service. The name of its model is
    compared, too: engines know the model by it."""
    taken = {fields.name.lower(), *map(str.lower, fields.models or ())}
    if fields.model is not None:
        taken.add(fields.model.lower())
        taken.add(_model_name(fields.model).lower())
    for adapter in fields.adapters:
        if adapter.name.lower() in taken:
            yield Problem(
                where=("adapters", adapter.name),
                text="is a name of the service itself",
                hint=f"write another name, for example: {fields.name}-{adapter.name}",
            )


def _model_name(model: str) -> str:
    try:
        return model_source_of(model).name
    except WrongValue:
        return model


def _check_source(fields: ServiceOwnFields, preset: EnginePreset, text: str) -> None:
    """Check that the engine can read an adapter. Raises: WrongValue."""
    try:
        source = model_source_of(text)
    except WrongValue as error:
        raise WrongValue(error.text, ADAPTER_HINT) from None
    if source.kind not in preset.adapter_sources:
        sources = " or ".join(
            kind for kind in SourceKind if kind in preset.adapter_sources
        )
        raise WrongValue(
            f"{fields.engine} cannot load {shown(text)}, only {sources}",
            "download the adapter to a path that all nodes have, then write the path",
        )
    if source.revision:
        raise WrongValue(
            f"{fields.engine} cannot load a revision of an adapter",
            f"write: hf://{source.location}, or download it and write its path",
        )
