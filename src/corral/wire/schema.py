"""JSON schemas of the formats that people and programs see. docs/generate.py writes
them to docs/reference/schema."""

from collections.abc import Mapping
from typing import Any, Final

from pydantic import BaseModel

from corral.wire import api, queue_answers, queue_file, service_answers, users
from corral.wire.service_fields import SERVICE_FORM
from corral.wire.spec_reader import SPEC_FORM, DocumentForm

_ANSWERS: Final[Mapping[str, type[BaseModel]]] = {
    "status": api.Status,
    "show": api.JobDetail,
    "ps": api.JobsView,
    "why": api.Why,
    "events": api.Events,
    "event": api.EventView,  # a line of events -f
    "job": api.JobView,  # of run -d and apply; several come as in ps
    "checkpoints": api.Checkpoints,
    "nodes": api.Nodes,
    "node": api.NodeDetail,
    "plan": api.Plan,
    "secrets": api.Secrets,
    "users": users.UsersView,
    "user": users.UserView,
    "tokens": users.TokensView,
    "token": users.TokenMade,  # of token create
    "audit": users.Audit,
    "logs": api.LogLines,
    "error": api.Error,
    "queues": queue_answers.Queues,
    "queue": queue_answers.QueueDetail,
    "queue_changes": queue_answers.QueueChanges,
    "services": service_answers.ServicesView,
    "service_view": service_answers.ServiceView,  # of service show
    "services_applied": service_answers.ServicesApplied,  # of apply and serve
}
_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


def schemas() -> dict[str, dict[str, Any]]:
    """Return each schema by name, for one file of docs/reference/schema each."""
    answers = {
        name: {"$schema": _DIALECT, **model.model_json_schema(mode="serialization")}
        for name, model in _ANSWERS.items()
    }
    file = {"$schema": _DIALECT, **queue_file.QueueFile.model_json_schema()}
    return {
        "spec": spec_schema(),
        "service": service_schema(),
        "queues_file": file,
        **answers,
    }


def spec_schema() -> dict[str, Any]:
    """Return the schema of a spec for editors."""
    schema = _document_schema(SPEC_FORM)
    for name in ("checkpoint", "warn", "topology"):
        schema["properties"][name]["anyOf"].append({"type": "string"})
    schema["properties"]["watch"]["anyOf"].append({"enum": ["on", "off", True, False]})
    keep = schema["$defs"]["CheckpointSpec"]["properties"]["keep"]
    keep["anyOf"].append({"type": "integer", "minimum": 1, "maximum": 10_000})
    schema["properties"]["after"] = {
        "anyOf": [
            {"type": "string"},
            {"$ref": "#/$defs/AfterSpec"},
            {
                "type": "array",
                "items": {"anyOf": [{"type": "string"}, {"$ref": "#/$defs/AfterSpec"}]},
            },
            {"type": "null"},
        ],
        "description": "jobs that must be done, failed, ended or started first",
    }
    schema["required"] = ["name"]  # run may be called commands
    return schema


def service_schema() -> dict[str, Any]:
    """Return the schema of a service's document for editors."""
    schema = _document_schema(SERVICE_FORM)
    schema["properties"]["topology"]["anyOf"].append({"type": "string"})
    schema["properties"]["canary"]["anyOf"].append({"enum": ["on", "off", True, False]})
    schema["required"] = ["kind", "name"]
    return schema


def _document_schema(form: DocumentForm[Any]) -> dict[str, Any]:
    """Return the schema of a document, with the field names of other tools as
    aliases."""
    schema = form.fields.model_json_schema()
    definitions = schema.get("$defs", {})
    for kind, model in form.sections.items():
        section = definitions[model.__name__] if kind else schema
        properties, required = section["properties"], section.get("required", [])
        for name, own_schema in list(properties.items()):
            own_schema.pop("default", None)
            if name not in required:
                properties[name] = _or_null(own_schema)
        for alias, field_name in form.spellings.get(kind, {}).items():
            properties[alias] = {
                **properties[field_name],
                "description": f"another word for {field_name}",
            }
    return {"$schema": _DIALECT, **schema}


def _or_null(own: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of a field, extended so that the value may also be null."""
    if {"type": "null"} in own.get("anyOf", []):
        return dict(own)
    return {"anyOf": [dict(own), {"type": "null"}]}
