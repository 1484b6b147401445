"""The fields of a service's document: how each is read, and its schema for editors. What
a replica needs has the fields of a job."""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    WithJsonSchema,
    create_model,
)

from corral.domain.ids import QueueName
from corral.domain.lending import ParkBy
from corral.domain.service import MOST_REPLICAS, CanaryRule, ScaleRule
from corral.domain.service_access import Adapter
from corral.domain.service_affinity import Affinity
from corral.domain.serving_roles import APART, CacheTransfer
from corral.domain.stream_continuation import ContinueBy
from corral.domain.units import DAY_SECONDS
from corral.wire import field_readers, service_readers
from corral.wire.engine_presets import ENGINE_PRESETS
from corral.wire.field_readers import reader
from corral.wire.foreign_fields import meant_by
from corral.wire.role_fields import (
    COMMAND_SCHEMA,
    REPLICAS_SCHEMA,
    RoleFields,
    RolesFields,
)
from corral.wire.spec_fields import (
    SECTIONS,
    SERVICE,
    SPELLINGS,
    ResourcesSpec,
    Spec,
)
from corral.wire.spec_reader import DocumentForm

# fields of a job that describe a replica of a service, too
REPLICA_FIELDS: Final = (
    "nodes",
    "resources",
    "any_of",
    "queue",
    "priority",
    "constraints",
    "topology",
    "exclusive",
    "apart_from",
    "preemptible",
    "env",
    "secrets",
    "token",
    "workdir",
    "setup",
    "image",
    "disconnect",
    "self_stop",
    "grace",
)
TRANSFERS: Final = tuple(way.value for way in CacheTransfer if way)
_DURATION: Final = {
    "type": "string",
    "examples": ["500ms", "60s", "10m"],
    "pattern": r"^[0-9][0-9.smhdwSMHDW:-]*$",
}
_NAMES: Final = {"type": "array", "items": {"type": "string"}}
_MODEL_NAME: Final = {"type": "string", "minLength": 1, "maxLength": 200}


def _seconds_field(
    field: str, example: str, low: float, high: float = DAY_SECONDS
) -> Any:
    read = reader(
        service_readers.seconds, field=field, example=example, low=low, high=high
    )
    return BeforeValidator(read), WithJsonSchema(dict(_DURATION))


def _amount_field(field: str, example: float) -> Any:
    schema = {"type": "number", "exclusiveMinimum": 0}
    read = reader(field_readers.amount, field=field, example=example)
    return BeforeValidator(read), WithJsonSchema(schema)


class _ServiceSection(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ScaleFields(_ServiceSection):
    """What decides the number of replicas: one measure for each replica, or the times
    that 9 of 10 requests keep."""

    queue: Annotated[float | None, *_amount_field("queue", 4)] = Field(
        default=None, description="requests under way at a replica"
    )
    rps: Annotated[float | None, *_amount_field("rps", 5)] = Field(
        default=None, description="requests a second at a replica"
    )
    tokens: Annotated[float | None, *_amount_field("tokens", 2000)] = Field(
        default=None, description="tokens a second at a replica"
    )
    ttft_p90: Annotated[float | None, *_seconds_field("ttft_p90", "500ms", 0.001)] = (
        Field(default=None, description="time to first token")
    )
    itl_p90: Annotated[float | None, *_seconds_field("itl_p90", "50ms", 0.001)] = Field(
        default=None, description="time between tokens"
    )
    back_within: Annotated[float | None, *_seconds_field("back_within", "10s", 0.1)] = (
        Field(default=None, description="time to wake a replica whose GPUs are lent")
    )
    down_after: Annotated[float, *_seconds_field("down_after", "5m", 1.0)] = Field(
        default=ScaleRule().down_after_seconds,
        description="time for which a replica must not have been needed",
    )


class CanaryFields(_ServiceSection):
    """Trial of a new revision: its share of the requests, and for how long."""

    share: Annotated[
        float,
        BeforeValidator(service_readers.share),
        WithJsonSchema({"type": ["string", "number"], "examples": ["5%"]}),
    ] = CanaryRule().share
    seconds: Annotated[
        float,
        BeforeValidator(
            lambda value: (
                0.0
                if value is None
                else service_readers.seconds(
                    value, field="for", example="10m", low=1.0, high=7 * DAY_SECONDS
                )
            )
        ),
        WithJsonSchema(dict(_DURATION)),
    ] = Field(default=CanaryRule().seconds, alias="for")


class LimitsFields(_ServiceSection):
    """Limits on requests."""

    body: Annotated[
        int,
        BeforeValidator(
            reader(
                service_readers.size,
                field="body",
                example="10MB",
                most=service_readers.MOST_BODY_BYTES,
            )
        ),
        WithJsonSchema({"type": "string", "examples": ["10MB"]}),
    ] = Field(default=10_000_000, description="largest body of a request")
    deadline: Annotated[float, *_seconds_field("deadline", "60s", 0.1)] = Field(
        default=60.0, description="longest time to the first byte of an answer"
    )


class AllowFields(_ServiceSection):
    """Users that may call the service; its owner, operators and admins always may."""

    users: Annotated[
        tuple[str, ...],
        BeforeValidator(service_readers.allowed_users),
        WithJsonSchema(dict(_NAMES)),
    ] = Field(default=(), description="users, and @ROLE for users of a role")
    queues: Annotated[
        tuple[QueueName, ...],
        BeforeValidator(service_readers.allowed_queues),
        WithJsonSchema(dict(_NAMES)),
    ] = Field(default=(), description="queues whose users may call the service")


class FallbackFields(_ServiceSection):
    """Another provider, for requests that no replica can take."""

    url: Annotated[
        str,
        BeforeValidator(service_readers.fallback_url),
        WithJsonSchema({"type": "string", "pattern": "^https?://"}),
    ] = Field(description="address of its API, up to /v1")
    model: Annotated[
        str,
        BeforeValidator(
            reader(
                field_readers.text, noun="model", example="model: gpt-large", most=200
            )
        ),
        WithJsonSchema(dict(_MODEL_NAME)),
    ] = Field(description="name of its model")
    secret: Annotated[
        str,
        BeforeValidator(service_readers.secret),
        WithJsonSchema({"type": "string"}),
    ] = Field(description="name of the secret with its API key")


class ServiceOwnFields(_ServiceSection):
    """Fields that only services have."""

    kind: Annotated[
        Literal["service"],
        BeforeValidator(reader(field_readers.choice, field="kind", among=(SERVICE,))),
        WithJsonSchema({"const": SERVICE}),
    ] = "service"
    name: Annotated[
        str,
        BeforeValidator(service_readers.service_name),
        WithJsonSchema({"type": "string", "maxLength": service_readers.LONGEST_NAME}),
    ]
    model: Annotated[
        str | None,
        BeforeValidator(service_readers.model),
        WithJsonSchema({"type": "string", "minLength": 1}),
    ] = Field(
        default=None,
        description="with an engine a path, hf://org/name@revision or s3://bucket/path; "
        "with a command of its own the name to serve under",
    )
    models: Annotated[
        tuple[str, ...] | None,
        BeforeValidator(service_readers.model_names),
        WithJsonSchema(
            {"anyOf": [_MODEL_NAME, {"type": "array", "items": _MODEL_NAME}]}
        ),
    ] = Field(
        default=None,
        description="further names to serve under; with an engine instead of the "
        "model's name",
    )
    engine: Annotated[
        str | None,
        BeforeValidator(reader(service_readers.engine, among=tuple(ENGINE_PRESETS))),
        WithJsonSchema({"enum": list(ENGINE_PRESETS)}),
    ] = Field(default=None, description="fills in run, probe and continues")
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
    ] = Field(default=None, description="listens on $CORRAL_HOST and $CORRAL_PORT")
    probe: Annotated[
        str | None,
        BeforeValidator(service_readers.probe),
        WithJsonSchema({"type": "string", "pattern": "^/"}),
    ] = Field(default=None, description="path that answers 200 once a replica is ready")
    replicas: Annotated[
        tuple[int, int],
        BeforeValidator(service_readers.replicas),
        WithJsonSchema(dict(REPLICAS_SCHEMA)),
    ] = (1, 1)
    roles: RolesFields | None = Field(
        default=None, description="replicas that prefill and decode apart"
    )
    transfer: Annotated[
        CacheTransfer,
        BeforeValidator(
            lambda value: CacheTransfer(
                field_readers.choice(value, field="transfer", among=TRANSFERS)
            )
        ),
        WithJsonSchema({"enum": list(TRANSFERS)}),
    ] = Field(
        default=CacheTransfer.NONE,
        description="how the KV cache gets from prefill to decode replicas",
    )
    sleeping: Annotated[
        int,
        BeforeValidator(
            reader(
                field_readers.whole,
                field="sleeping",
                low=0,
                high=MOST_REPLICAS,
                noun="the number of sleeping replicas",
            )
        ),
        WithJsonSchema({"type": "integer", "minimum": 0, "maximum": MOST_REPLICAS}),
    ] = Field(default=0, description="replicas that sleep, ready to wake")
    park: Annotated[
        ParkBy | None,
        BeforeValidator(
            lambda value: ParkBy(
                field_readers.choice(
                    value, field="park", among=tuple(way.value for way in ParkBy)
                )
            )
        ),
        WithJsonSchema({"enum": [way.value for way in ParkBy]}),
    ] = Field(default=None, description="what a sleeping replica keeps")
    scale: ScaleFields = ScaleFields()
    canary: Annotated[CanaryFields, BeforeValidator(service_readers.canary)] = (
        CanaryFields()
    )
    limits: LimitsFields = LimitsFields()
    drain: Annotated[float, *_seconds_field("drain", "60s", 0.0)] = 60.0
    continues: Annotated[
        ContinueBy | None,
        BeforeValidator(
            lambda value: ContinueBy(
                field_readers.choice(
                    value,
                    field="continues",
                    among=tuple(way.value for way in ContinueBy),
                )
            )
        ),
        WithJsonSchema({"enum": [way.value for way in ContinueBy]}),
    ] = Field(
        default=None,
        description="how another replica continues a stream whose replica was lost",
    )
    affinity: Annotated[
        Affinity,
        BeforeValidator(
            lambda value: Affinity(
                field_readers.choice(
                    value,
                    field="affinity",
                    among=tuple(way.value for way in Affinity),
                )
            )
        ),
        WithJsonSchema({"enum": [way.value for way in Affinity]}),
    ] = Field(
        default=Affinity.PROMPT,
        description="how the gateway learns which prompts a replica has in its cache",
    )
    adapters: Annotated[
        tuple[Adapter, ...],
        BeforeValidator(service_readers.adapters),
        WithJsonSchema({"type": "object", "additionalProperties": {"type": "string"}}),
    ] = Field(default=(), description="LoRA adapters: where each lies, by name")
    max_adapters: Annotated[
        int | None,
        BeforeValidator(
            reader(
                field_readers.whole,
                field="max_adapters",
                low=1,
                high=service_readers.MOST_LOADED_ADAPTERS,
                noun="the number of loaded adapters",
            )
        ),
        WithJsonSchema(
            {
                "type": "integer",
                "minimum": 1,
                "maximum": service_readers.MOST_LOADED_ADAPTERS,
            }
        ),
    ] = Field(default=None, description="adapters that a replica has loaded at once")
    allow: AllowFields | None = Field(
        default=None, description="users that may call the service; without it all may"
    )
    fallback: FallbackFields | None = Field(
        default=None, description="provider for requests that no replica can take"
    )


ServiceFields: Final = create_model(
    "ServiceFields",
    __base__=ServiceOwnFields,
    __doc__="Document of a service. Amounts are in the units of domain.ServiceSpec.",
    **{
        name: (Spec.model_fields[name].annotation, Spec.model_fields[name])
        for name in REPLICA_FIELDS
    },  # type: ignore[call-overload]
)
_SECTIONS: Final[Mapping[tuple[str, ...], type[BaseModel]]] = {
    (): ServiceFields,
    ("scale",): ScaleFields,
    ("canary",): CanaryFields,
    ("limits",): LimitsFields,
    ("allow",): AllowFields,
    ("fallback",): FallbackFields,
    ("roles",): RolesFields,
    **{
        ("roles", role.value, *path): model
        for role in APART
        for path, model in (((), RoleFields), (("resources",), ResourcesSpec))
    },
    **{
        path: model
        for path, model in SECTIONS.items()
        if path[:1] and path[0] in REPLICA_FIELDS
    },
}
_UNTIL_STOPPED: Final = (
    "a service has no such field: it runs until it is stopped",
    "remove it; to end the service, run: corral service stop NAME",
)
_REPLICAS: Final = "write: replicas: 1..8"
_SCALE: Final = "write: scale: {queue: 4}"
_PROBE: Final = "write: probe: /health"
_MEANT: Final[Mapping[str, str]] = {
    "port": "listen on the port $CORRAL_PORT: run: python server.py --port $CORRAL_PORT",
    "ports": "listen on the port $CORRAL_PORT: run: python server.py --port $CORRAL_PORT",
    "min_replicas": _REPLICAS,
    "max_replicas": _REPLICAS,
    "replica_policy": _REPLICAS,
    "autoscaling": _REPLICAS,
    "target_qps_per_replica": "write: scale: {rps: 5}",
    "concurrency": _SCALE,
    "scaling": _SCALE,
    "readiness_probe": _PROBE,
    "healthcheck": _PROBE,
    "health_check": _PROBE,
    "timeout": "write: limits: {deadline: 60s}",
    "served_model_name": "write: models: [NAME]",
    "aliases": "write: models: [NAME]",
    "args": "write the whole command: run: vllm serve ...",
    "lora_modules": "write: adapters: {legal: /data/legal-lora}",
    "loras": "write: adapters: {legal: /data/legal-lora}",
    "max_loras": "write: max_adapters: 4",
    "access": "write: allow: {users: [alice]}",
    "rollout": "write: canary: {share: 5%, for: 10m}",
}
_REFUSED: Final = {
    "array": ("a service has no such field", _REPLICAS),
    "elastic": ("a service has no such field", _REPLICAS),
    "retry": (
        "a service has no such field: replicas that end are replaced",
        "remove it",
    ),
    "checkpoint": (
        "a service has no such field: replicas save no checkpoints",
        "remove it; for a job that saves them, remove kind: service",
    ),
    "max_duration": _UNTIL_STOPPED,
    "begin": ("a service has no such field: it starts at once", "remove it"),
    "start_by": ("a service has no such field: it starts at once", "remove it"),
    "after": ("a service has no such field: it starts at once", "remove it"),
    "warn": _UNTIL_STOPPED,
    "per": (
        "a service has no such field: the command is started once for each node",
        "remove it",
    ),
}


def _service_field_meant(word: str) -> str:
    """Return a hint what to write instead of another system's field name; "" if the
    name is unknown."""
    plain = word.lower().lstrip("-").replace("-", "_")
    if plain in _MEANT:
        return _MEANT[plain]
    hint = meant_by(word)
    field_name = hint.removeprefix("write: ").partition(":")[0]
    if field_name in _REFUSED:  # the name stands for a field that only jobs have
        return _REFUSED[field_name][1]
    return hint if field_name in ServiceFields.model_fields else ""


SERVICE_FORM: Final = DocumentForm(
    fields=ServiceFields,
    sections=_SECTIONS,
    spellings=SPELLINGS,
    examples={
        "name": "name: chat",
        "model": "model: hf://org/name",
        "run": "run: python server.py --port $CORRAL_PORT",
        "resources": 'resources: {gpu: "h100:2"}',
        "any_of": 'any_of: [{resources: {gpu: "a100:2"}}]',
        "scale": "scale: {queue: 4}",
        "canary": "canary: {share: 5%, for: 10m}, or canary: off",
        "limits": "limits: {body: 10MB, deadline: 60s}",
        "adapters": "adapters: {legal: /data/legal-lora}",
        "allow": "allow: {users: [alice], queues: [research]}",
        "roles": "roles: {prefill: {replicas: 1..4}, decode: {replicas: 2..8}}",
        "prefill": "prefill: {replicas: 1..4}",
        "decode": "decode: {replicas: 2..8}",
        "fallback": "fallback: {url: https://api.example.com/v1, model: NAME, "
        "secret: API_KEY}",
        "url": "url: https://api.example.com/v1",
        "secret": "secret: API_KEY",
        "topology": "topology: {mode: require, within: rack}",
    },
    schema="docs/reference/schema/service.json",
    meant_by=_service_field_meant,
    refused=_REFUSED,
)
