"""The fields of the groups of replicas that prefill and decode apart, in the document of
a service."""

from typing import Annotated, Any, Final

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from corral.domain.service import MOST_REPLICAS
from corral.wire import field_readers, service_readers
from corral.wire.field_readers import reader
from corral.wire.spec_fields import Nodes, ResourcesSpec

REPLICAS_SCHEMA: Final[dict[str, Any]] = {
    "anyOf": [
        {"type": "integer", "minimum": 0, "maximum": MOST_REPLICAS},
        {"type": "string", "pattern": r"^[0-9]+(\.\.[0-9]+)?$"},
    ],
    "examples": ["1..8"],
}
COMMAND_SCHEMA: Final[dict[str, Any]] = {
    "anyOf": [
        {"type": "string", "minLength": 1},
        {"type": "array", "items": {"type": "string"}, "minItems": 1},
    ]
}


class RoleFields(BaseModel):
    """Replicas of one role: how many, and what differs from the service."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    replicas: Annotated[
        tuple[int, int],
        BeforeValidator(service_readers.replicas),
        WithJsonSchema(dict(REPLICAS_SCHEMA)),
    ] = (1, 1)
    nodes: Nodes | None = None
    resources: ResourcesSpec | None = None
    env: Annotated[
        tuple[tuple[str, str], ...],
        BeforeValidator(field_readers.environment),
        WithJsonSchema(
            {"type": "object", "additionalProperties": {"type": ["string", "number"]}}
        ),
    ] = Field(default=(), description="variables in addition to those of the service")
    run: Annotated[
        str | None,
        BeforeValidator(
            reader(
                field_readers.command,
                field="run",
                example="python server.py --port $CORRAL_PORT",
            )
        ),
        WithJsonSchema(dict(COMMAND_SCHEMA)),
    ] = Field(default=None, description="command of this role")


class RolesFields(BaseModel):
    """Groups of replicas that compute different parts of each request."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    prefill: RoleFields = Field(description="replicas that compute long prompts")
    decode: RoleFields = Field(description="replicas that answer")
