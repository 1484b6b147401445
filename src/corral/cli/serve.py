"""`corral serve`: a service from options, followed until it is ready."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from corral.cli.embedded_head import head_for
from corral.cli.error_output import DONE, Usage
from corral.cli.head_options import Change, declined
from corral.cli.option_types import (
    CommandLine,
    CountText,
    EngineName,
    EnvironmentVariable,
    GpuCounts,
    ModelName,
    PathText,
    Priority,
    QueueName,
    ReplicaRange,
    SecretName,
    Size,
)
from corral.cli.printing import note, print_json, say
from corral.cli.service_follow import follow_services
from corral.cli.services import say_applied, say_warnings
from corral.cli.spec_options import assignment
from corral.cli.time_options import number

_DRY_RUN = Parameter(name=["--dry-run", "-n"], negative="", show_default=False)
_DETACH = Parameter(name=["--detach", "-d"], negative="", show_default=False)
_ENV = Parameter(name=["--env", "-e"], negative="", show_default=False)
_REPEATED = Parameter(negative="", show_default=False)


def serve(
    name: str,
    /,
    *,
    model: ModelName | None = None,
    engine: EngineName | None = None,
    replicas: ReplicaRange | None = None,
    gpus: GpuCounts | None = None,
    cpus: CountText | None = None,
    memory: Size | None = None,
    run: CommandLine | None = None,
    probe: PathText | None = None,
    workdir: Path | None = None,
    env: Annotated[tuple[EnvironmentVariable, ...], _ENV] = (),
    secret: Annotated[tuple[SecretName, ...], _REPEATED] = (),
    queue: QueueName | None = None,
    priority: Priority | None = None,
    detach: Annotated[bool, _DETACH] = False,
    dry_run: Annotated[bool, _DRY_RUN] = False,
    common: Change = Change(),  # noqa: B008 - frozen
) -> int:
    """Serve a model, and follow the service until a replica is ready.

    Args:
        name: Name of the service.
        model: Model: hf://org/name@revision, a path, s3://bucket/path, or
            https://host/file#sha256=HASH. With --run, the name under which it is
            served.
        engine: Engine that fills in the command: vllm, sglang, llama.cpp, transformers
            or tiny.
        replicas: Number of replicas: 2, or a range: 1..4 (default: 1).
        gpus: GPUs per replica: 1, or by type: h100:2 (default: 0).
        cpus: CPU cores per replica.
        memory: Memory per replica: 64GB.
        run: Command of a replica instead of an engine: an HTTP server that listens on
            $CORRAL_PORT.
        probe: Path that answers 200 once a replica is ready, for --run (default:
            /health).
        workdir: Directory whose files are sent with the service (default: none).
        env: Environment variable of the replicas: K=V, or K alone for its value in this
            shell; may be repeated.
        secret: Secret that the replicas receive in an environment variable of its name;
            may be repeated.
        queue: Queue of the replicas (default: the queue named default).
        priority: Priority: low, normal, high, or a number: 50 (default: normal).
        detach: Exit once the service is applied (default: follow it until a replica is
            ready).
        dry_run: Print the document of the service and what would change, without
            changing anything.
    """
    document = _document_of(locals())
    if run is None and (engine is None or model is None):
        raise Usage(
            "without --run, both --engine and --model are needed",
            hint=f"run, for example: corral serve {name} --engine {engine or 'vllm'} "
            f"--model {model or 'hf://org/name'}; or with a server of your own, which "
            f"listens on $CORRAL_PORT: corral serve {name} --run 'python server.py'",
        )
    return _apply_document(document, common, dry_run=dry_run, detach=detach)


def _document_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document of a service for the options of `serve`, by name."""
    amounts = {
        "gpu": number(options["gpus"]),
        "cpu": number(options["cpus"]),
        "memory": options["memory"],
    }
    names = ("name", "model", "engine", "run", "probe", "queue")
    workdir = options["workdir"]
    return _without_empty(
        {
            "kind": "service",
            **{name: options[name] for name in names},
            "replicas": number(options["replicas"]),
            "resources": _without_empty(amounts),
            "priority": number(options["priority"]),
            "workdir": str(workdir.expanduser().absolute()) if workdir else None,
            "env": dict(assignment(pair) for pair in options["env"]),
            "secrets": list(options["secret"]),
        }
    )


def _without_empty(fields: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value not in (None, [], {})}


def _apply_document(
    document: dict[str, Any], common: Change, *, dry_run: bool, detach: bool
) -> int:
    from corral.client.service_input import read_wire_services

    read_wire_services(document)  # reports errors before anything is started
    if dry_run:
        _print_plan(document, common)
        return DONE
    with head_for(common), common.client() as client:
        if common.asks:
            say_applied(client.apply_services(document, dry_run=True))
        if not common.agreed("apply?"):
            raise declined(hint="correct the options, then run the command again")
        applied = client.apply_services(document)
        if not common.asks and not common.json:
            say_applied(applied)
        if detach:
            if common.json:
                print_json(applied)
            return DONE
        if common.json:
            say_warnings(applied)
        revisions = {change.name: change.revision for change in applied.services}
        return follow_services(client, revisions, common)


def _print_plan(document: dict[str, Any], common: Change) -> None:
    """Print the document as YAML, and to stderr what would change. Without a head only
    the document is printed."""
    import yaml

    from corral.boot.start_head import head_runs

    has_head = common.remote or head_runs(common.place)
    if not common.json:
        say(yaml.safe_dump(document, sort_keys=False, allow_unicode=True).rstrip())
    if not has_head:
        note(f"no head runs in {common.place.root}: the document is valid")
        return
    with common.client() as client:
        applied = client.apply_services(document, dry_run=True)
    if common.json:
        print_json(applied)
        return
    for change in applied.services:
        words = {
            "created": "would be a new service",
            "revision": f"would get revision {change.revision}",
            "returned": "would end its canary",
            "changed": "would change, and keep its replicas",
            "unchanged": "would not change",
        }[change.change]
        note(f"{change.name} {words}; nothing was done, because of --dry-run")
