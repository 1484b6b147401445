"""The fields of a job's spec: how each is read, and its schema for editors."""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from corral.domain.bounds import SCALAR_LETTERS
from corral.domain.keep_rule import Goal
from corral.domain.placement_constraints import Constraint
from corral.domain.time_point import Moment
from corral.wire import field_readers, time_and_place, watch_rule
from corral.wire.array_indices import Array, read_array
from corral.wire.field_readers import reader
from corral.wire.model_source import read_model
from corral.wire.save_place import read_bandwidth, read_save_path

SPELLINGS: Final[Mapping[tuple[str, ...], Mapping[str, str]]] = {
    (): {
        "num_nodes": "nodes",
        "commands": "run",
        "envs": "env",
        "type": "kind",
        "anti_affinity": "apart_from",
    },
    ("resources",): {"accelerators": "gpu", "gpus": "gpu", "cpus": "cpu"},
    ("any_of",): {"num_nodes": "nodes"},
    ("any_of", "resources"): {"accelerators": "gpu", "gpus": "gpu", "cpus": "cpu"},
}

RAY: Final = "ray"
# kinds of documents that are no specs of jobs
QUEUES: Final = "queues"
SERVICE: Final = "service"
_DURATION: Final = {
    "type": "string",
    "examples": ["90s", "4h", "1d12h", "2-12:00:00"],
    "pattern": r"^[0-9][0-9.smhdwSMHDW:-]*$",
}
_NAME: Final = {
    "type": "string",
    "pattern": r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$",
}
_COMMAND: Final = {
    "anyOf": [
        {"type": "string", "minLength": 1},
        {"type": "array", "items": {"type": "string"}, "minItems": 1},
    ]
}


def _annotate_reader(read_it: Any, schema: Mapping[str, Any]) -> Any:
    """Return the pydantic annotations of a field: its reader, and its schema for
    editors."""
    return BeforeValidator(read_it), WithJsonSchema(dict(schema))


def _integer_field(field: str, low: int, high: int, noun: str) -> Any:
    return _annotate_reader(
        reader(field_readers.whole, field=field, low=low, high=high, noun=noun),
        {"type": "integer", "minimum": low, "maximum": high},
    )


def _duration_field(
    field: str, low: float = 1.0, high: float = field_readers.MAX_SECONDS
) -> Any:
    return _annotate_reader(
        reader(field_readers.seconds, field=field, low=low, high=high), _DURATION
    )


def _time_field(field: str) -> Any:
    examples = ["30m", "2026-11-22T08:00:00Z"]
    return _annotate_reader(
        reader(time_and_place.moment, field=field),
        {"type": "string", "examples": examples},
    )


def _boolean_field(field: str) -> Any:
    return _annotate_reader(
        reader(time_and_place.truth, field=field), {"type": "boolean"}
    )


def _parse_kind(value: Any) -> str:
    """Return the kind of a spec.

    Queues and services are refused with a hint, because they are no specs of jobs.

    Raises: WrongValue.
    """
    if value == "task":
        return "job"
    if value == SERVICE:
        raise field_readers.WrongValue(
            "a service cannot be submitted like a job",
            "run: corral apply -f FILE",
        )
    if value == QUEUES:
        raise field_readers.WrongValue(
            "queues cannot be in the same file as jobs",
            "write the queues into another file, then run: corral apply -f FILE",
        )
    return field_readers.choice(
        value, field="kind", among=("job", RAY, SERVICE, QUEUES)
    )


def _choice_field(field: str, *among: str) -> Any:
    return _annotate_reader(
        reader(field_readers.choice, field=field, among=among),
        {"type": "string", "enum": list(among)},
    )


def _name_field(field: str, noun: str) -> Any:
    return _annotate_reader(reader(field_readers.name, field=field, noun=noun), _NAME)


def _text_field(noun: str, example: str, most: int = 4096) -> Any:
    return _annotate_reader(
        reader(field_readers.text, noun=noun, example=example, most=most),
        {"type": "string", "minLength": 1},
    )


def _image_field() -> Any:
    examples = ["ubuntu:24.04", "/data/torch.sif"]
    return _annotate_reader(
        reader(field_readers.image),
        {"type": "string", "minLength": 1, "examples": examples},
    )


_KEEP_LAST: Final = _integer_field("last", 1, 10_000, "checkpoints")


def _expand_keep(value: Any) -> Any:
    """Convert `keep: 3` to the long form. Raises: WrongValue."""
    if isinstance(value, Mapping):
        return value
    read_number = reader(
        field_readers.whole, field="keep", low=1, high=10_000, noun="checkpoints"
    )
    return {"last": read_number(value)}


Nodes = Annotated[int, *_integer_field("nodes", 1, field_readers.MAX_NODES, "nodes")]
Gpu = Annotated[
    tuple[str | None, int],
    *_annotate_reader(
        field_readers.gpus,
        {
            "anyOf": [
                {"type": "number", "minimum": 0, "maximum": field_readers.MAX_GPUS},
                {"type": "string", "pattern": r"^[A-Za-z][A-Za-z0-9._-]*(:[0-9.]+)?$"},
                {"type": "object", "maxProperties": 2},
            ],
            "examples": [8, 0.5, "h100:8"],
        },
    ),
]
Cpu = Annotated[
    int,
    *_annotate_reader(
        field_readers.cpu_millis,
        {"anyOf": [{"type": "number", "minimum": 0}, {"type": "string"}]},
    ),
]
Memory = Annotated[
    int,
    *_annotate_reader(
        field_readers.memory_bytes, {"type": "string", "examples": ["256GB", "64GiB"]}
    ),
]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ResourcesSpec(_Section):
    """Resources of one node."""

    gpu: Gpu = Field(default=(None, 0), description="8, 0.5 (a share), or TYPE:N")
    cpu: Cpu = Field(default=0, description="cores")
    memory: Memory = Field(default=0, description="for example 256GB")


class ShapeSpec(_Section):
    """An alternative form of the job."""

    nodes: Nodes | None = None
    resources: ResourcesSpec = ResourcesSpec()


class BestSpec(_Section):
    """Saves that stay because they are the best by a metric that the job logs."""

    metric: Annotated[str, *_text_field("metric", "metric: loss", SCALAR_LETTERS)]
    count: Annotated[int, *_integer_field("count", 1, 1_000, "checkpoints")] = 1
    goal: Annotated[
        Literal["min", "max"], *_choice_field("goal", Goal.MIN, Goal.MAX)
    ] = "min"


class KeepSpec(_Section):
    """Saves that stay on disk: the newest, the first of each period, and the best."""

    last: Annotated[int, *_KEEP_LAST] = 3
    every: Annotated[float | None, *_duration_field("every", 60.0)] = None
    best: BestSpec | None = None


_SAVE_PATH: Final = {
    "type": "string",
    "minLength": 1,
    "examples": ["./ckpt", "s3://bucket/prefix", "gs://bucket/prefix"],
}
_BANDWIDTH: Final = {"type": "string", "examples": ["500MB/s"]}


class CheckpointSpec(_Section):
    """Path of checkpoints, and the save of an ended job from which the job starts."""

    path: Annotated[
        str | None, *_annotate_reader(reader(read_save_path), _SAVE_PATH)
    ] = None
    source: Annotated[
        str | None, *_text_field("job", "from: j35, or from: j35@400")
    ] = Field(
        default=None,
        alias="from",
        description="JOB or JOB@STEP: an ended job, whose newest save (or this one) to start "
        "from; a pinned save may be of a running job",
    )
    interval: Annotated[
        float | None,
        *_annotate_reader(
            lambda value: (
                None
                if value == "auto"
                else field_readers.seconds(value, field="interval", low=1)
            ),
            {"anyOf": [{"const": "auto"}, _DURATION]},
        ),
    ] = None
    keep: Annotated[KeepSpec, BeforeValidator(_expand_keep)] = KeepSpec()
    local: Annotated[Literal["auto", "off"], *_choice_field("local", "auto", "off")] = (
        "auto"
    )
    bandwidth: Annotated[int | None, *_annotate_reader(read_bandwidth, _BANDWIDTH)] = (
        Field(
            default=None,
            description="bytes of saves that each node writes at most in a second",
        )
    )


class RetrySpec(_Section):
    infra: Annotated[int, *_integer_field("infra", 0, 10_000, "retries")] = 20
    user: Annotated[int, *_integer_field("user", 0, 10_000, "retries")] = 0


class ElasticSpec(_Section):
    min_nodes: Annotated[
        int, *_integer_field("min_nodes", 1, field_readers.MAX_NODES, "nodes")
    ]
    max_nodes: Annotated[
        int, *_integer_field("max_nodes", 1, field_readers.MAX_NODES, "nodes")
    ]


class AfterSpec(_Section):
    """Condition on another job. For an array, all of its jobs must meet the condition;
    for `failed`, one failed job is enough, once all have ended."""

    job: Annotated[str, *_name_field("job", "name or id of a job")]
    on: Annotated[str, *_choice_field("on", "done", "failed", "ended", "started")] = (
        "done"
    )


class WarnSpec(_Section):
    """Warning of the job before its max_duration ends."""

    signal: Annotated[
        int | None,
        *_annotate_reader(
            time_and_place.signal_number,
            {"anyOf": [{"type": "string"}, {"type": "integer"}], "examples": ["USR1"]},
        ),
    ] = None
    before: Annotated[float | None, *_duration_field("before")] = None


class WatchSpec(_Section):
    """What is done about a job that makes no steps. `hang` is the time without a step
    after which it hangs; auto: learned from the job."""

    hang: Annotated[
        float | Literal["auto", "off"],
        *_annotate_reader(
            watch_rule.hang_bound,
            {"anyOf": [{"enum": [watch_rule.AUTO, watch_rule.OFF, False]}, _DURATION]},
        ),
    ] = "auto"
    act: Annotated[
        Literal["restart", "alert"],
        *_choice_field("act", watch_rule.RESTART, watch_rule.ALERT),
    ] = "restart"


class TopologySpec(_Section):
    """How close the nodes of the job must be. `within` without a mode is required, not
    preferred."""

    mode: Annotated[
        str | None, *_choice_field("mode", "prefer", "require", "spread")
    ] = None
    within: Annotated[str | None, *_choice_field("within", "nvlink", "rack", "pod")] = (
        None
    )


def _expand_dependencies(value: Any) -> Any:
    """Convert `after: prepare`, `after: [a, "b:failed"]` and `after: {job: a}` to the
    long form."""
    entries = value if isinstance(value, list) else [value]
    return [_reference(entry) if isinstance(entry, str) else entry for entry in entries]


def _reference(text: str) -> dict[str, str]:
    """Parse a dependency: JOB, or JOB:CONDITION as in JOB:failed. Return its fields.
    The condition is done, failed, ended or started."""
    job, colon, on = text.partition(":")
    return {"job": job, "on": on} if colon else {"job": job}


def _checkpoint(value: Any) -> Any:
    return {"path": value} if isinstance(value, str) else value


_LABEL_VALUE: Final = {
    "anyOf": [{"type": "string"}, {"type": "number"}, {"const": True}]
}
_LABEL_VALUES: Final = {
    "anyOf": [
        *_LABEL_VALUE["anyOf"],
        {"type": "array", "items": _LABEL_VALUE, "minItems": 1},
    ]
}
_NAMES: Final = {"anyOf": [_NAME, {"type": "array", "items": _NAME}]}


_MODEL: Final = {
    "type": "string",
    "minLength": 1,
    "examples": ["hf://org/name@revision", "s3://bucket/model", "/data/model"],
}


class Spec(_Section):
    """One document of a spec after validation. Amounts are in the units of
    domain.JobSpec."""

    name: Annotated[str, *_name_field("name", "name of a job")]
    run: Annotated[
        str, *_annotate_reader(reader(field_readers.command, field="run"), _COMMAND)
    ]
    nodes: Nodes = 1
    resources: ResourcesSpec = ResourcesSpec()
    any_of: tuple[ShapeSpec, ...] = Field(default=(), max_length=100)
    queue: Annotated[str, *_name_field("queue", "name of a queue")] = "default"
    priority: Annotated[
        int,
        *_annotate_reader(
            field_readers.priority,
            {
                "anyOf": [
                    {"enum": ["low", "normal", "high"]},
                    {"type": "integer", "minimum": -10_000, "maximum": 10_000},
                ]
            },
        ),
    ] = 0
    begin: Annotated[Moment | None, *_time_field("begin")] = None
    start_by: Annotated[Moment | None, *_time_field("start_by")] = None
    max_duration: Annotated[float | None, *_duration_field("max_duration")] = None
    warn: Annotated[WarnSpec, BeforeValidator(time_and_place.warn)] = WarnSpec()
    constraints: Annotated[
        tuple[Constraint, ...],
        *_annotate_reader(
            time_and_place.constraints,
            {
                "type": "object",
                "additionalProperties": {
                    "anyOf": [
                        *_LABEL_VALUES["anyOf"],
                        {
                            "type": "object",
                            "properties": {"not": _LABEL_VALUES},
                            "required": ["not"],
                            "additionalProperties": False,
                        },
                    ]
                },
                "examples": [{"zone": "a", "node": {"not": ["n3"]}}],
            },
        ),
    ] = ()
    topology: Annotated[TopologySpec, BeforeValidator(time_and_place.topology)] = (
        TopologySpec()
    )
    exclusive: Annotated[bool, *_boolean_field("exclusive")] = False
    apart_from: Annotated[
        tuple[str, ...],
        *_annotate_reader(reader(time_and_place.names, field="apart_from"), _NAMES),
    ] = ()
    preemptible: Annotated[bool, *_boolean_field("preemptible")] = False
    env: Annotated[
        tuple[tuple[str, str], ...],
        *_annotate_reader(
            field_readers.environment,
            {"type": "object", "additionalProperties": {"type": ["string", "number"]}},
        ),
    ] = ()
    secrets: Annotated[
        tuple[str, ...],
        *_annotate_reader(
            field_readers.secrets, {"type": "array", "items": {"type": "string"}}
        ),
    ] = ()
    token: Annotated[
        Literal["own", "submit"] | None, *_choice_field("token", "own", "submit")
    ] = None
    workdir: Annotated[str | None, *_text_field("path", "workdir: .")] = None
    setup: Annotated[
        str | None,
        *_annotate_reader(reader(field_readers.command, field="setup"), _COMMAND),
    ] = None
    per: Annotated[Literal["node", "gpu"], *_choice_field("per", "node", "gpu")] = (
        "node"
    )
    image: Annotated[str | None, *_image_field()] = None
    model: Annotated[str | None, *_annotate_reader(reader(read_model), _MODEL)] = None
    checkpoint: Annotated[CheckpointSpec | None, BeforeValidator(_checkpoint)] = None
    retry: RetrySpec = RetrySpec()
    disconnect: Annotated[
        Literal["replace", "wait"] | None,
        *_choice_field("disconnect", "replace", "wait"),
    ] = None
    self_stop: Annotated[float | None, *_duration_field("self_stop")] = None
    grace: Annotated[float, *_duration_field("grace", 0.0, 86_400.0)] = 30.0
    elastic: ElasticSpec | None = None
    watch: Annotated[WatchSpec | None, BeforeValidator(watch_rule.expand_watch)] = (
        WatchSpec()
    )
    after: Annotated[tuple[AfterSpec, ...], BeforeValidator(_expand_dependencies)] = (
        Field(default=(), max_length=1000)
    )
    array: Annotated[
        Array | None,
        *_annotate_reader(
            read_array, {"type": "string", "examples": ["0-99%10", "1,3,5"]}
        ),
    ] = None
    kind: Annotated[
        Literal["job", "ray"],
        *_annotate_reader(_parse_kind, {"enum": ["job", RAY, "task"]}),
    ] = "job"


SECTIONS: Final[Mapping[tuple[str, ...], type[BaseModel]]] = {
    (): Spec,
    ("resources",): ResourcesSpec,
    ("any_of",): ShapeSpec,
    ("any_of", "resources"): ResourcesSpec,
    ("checkpoint",): CheckpointSpec,
    ("checkpoint", "keep"): KeepSpec,
    ("checkpoint", "keep", "best"): BestSpec,
    ("retry",): RetrySpec,
    ("elastic",): ElasticSpec,
    ("after",): AfterSpec,
    ("warn",): WarnSpec,
    ("watch",): WatchSpec,
    ("topology",): TopologySpec,
}
