"""Conversion of a batch script, its options and its environment to the spec of a job.
No I/O."""

import os.path
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final

from corral.domain.ids import is_name
from corral.domain.job import PRIORITIES
from corral.wire import field_readers as fields
from corral.wire.array_indices import read_array
from corral.wire.field_readers import OWN_TOKEN
from corral.wire.slurm import paths, value_forms
from corral.wire.slurm.batch_plan import BatchPlan, command_of
from corral.wire.slurm.hostlist import expand
from corral.wire.slurm.ids import id_of
from corral.wire.slurm.options import ParsedOptions, words_of_script
from corral.wire.slurm.resource_shape import SlurmShape, shape_of
from corral.wire.slurm.sbatch_options import SBATCH
from corral.wire.slurm.slurm_errors import SlurmRefusal

_TASKS: Final = ("ntasks", "ntasks-per-node", "ntasks-per-gpu")
_ON: Final = {
    "after": "started",
    "afterok": "done",
    "afternotok": "failed",
    "afterany": "ended",
}
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}", re.ASCII)
_NOT_SENT: Final = re.compile(
    r"(?:SLURM|SBATCH|CORRAL|SRUN)_.*|SLURMD_NODENAME|_", re.ASCII
)
_SECRET: Final = re.compile(
    r"(?:.*_)?(?:TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?|APIKEY|API_KEY|ACCESS_KEY|PRIVATE_KEY)"
    r"(?:_.*)?",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Here:
    """Where and when a submission is made: its directory, host, time and environment."""

    directory: str
    host: str
    now: datetime
    environment: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSubmission:
    """A batch script as a submission. `notes` are printed to standard error.
    `singleton`: the job waits for all jobs of the same name and owner, which only the
    head can determine."""

    spec: dict[str, Any]
    read: ParsedOptions
    plan: BatchPlan
    notes: tuple[str, ...]
    singleton: bool = False


def read_batch(
    words: Sequence[str],
    script: str | None,
    here: Here,
    *,
    name: str = "",
    path: str = "",
) -> BatchSubmission:
    """Read a batch script and its options.

    `words` are the arguments of the command line before the script's own arguments. If
    an option is given several times, the command line takes precedence, then the
    environment, then the script.

    Raises: SlurmRefusal.
    """
    typed = SBATCH.read(words)
    if typed.has("wrap"):
        script = f"#!/bin/sh\n# This script was created by sbatch --wrap.\n\n{typed.get('wrap')}\n"
    if script is None:
        raise SlurmRefusal(
            "no batch script is given",
            hint="write: sbatch [OPTIONS] SCRIPT [ARGUMENTS]",
        )
    script_options, components = _said_by(script)
    given_options = {
        **script_options,
        **SBATCH.of_environment(here.environment),
        **typed.options,
    }
    arguments = () if typed.has("wrap") else typed.rest[1:]
    for name_of_count in ("nodes", "ntasks"):
        if components > 1 and (
            name_of_count in given_options or name_of_count == "nodes"
        ):
            count_per_component = value_forms.count(
                given_options.get(name_of_count, "1"), f"--{name_of_count}"
            )
            given_options[name_of_count] = str(count_per_component * components)
    merged_options = SBATCH.checked(given_options, typed.rest)
    batch = _build_submission(
        merged_options,
        script,
        here,
        name="wrap" if typed.has("wrap") else name,
        path=path,
        arguments=arguments,
    )
    return batch if components == 1 else _of_components(batch, script, components)


def _said_by(script: str) -> tuple[dict[str, str], int]:
    """Return (options in the script's #SBATCH lines, number of components of a
    heterogeneous job). All components must request the same resources; only their names
    may differ.

    Raises: SlurmRefusal if they differ.
    """
    groups = [
        dict(SBATCH.read(script_arguments).options)
        for script_arguments in words_of_script(script)
    ]
    unnamed = [
        {key: value for key, value in group.items() if key != "job-name"}
        for group in groups
    ]
    if any(component != unnamed[0] for component in unnamed):
        raise SlurmRefusal(
            "heterogeneous jobs whose components request different resources are not "
            "supported",
            hint="submit each component as a job, the second with "
            "--dependency=after:ID of the first",
        )
    return groups[0], len(groups)


def _of_components(
    batch: BatchSubmission, script: str, components: int
) -> BatchSubmission:
    plan = replace(batch.plan, components=components)
    return replace(
        batch, plan=plan, spec={**batch.spec, "run": command_of(script, plan)}
    )


def _build_submission(
    read: ParsedOptions,
    script: str,
    here: Here,
    *,
    name: str,
    path: str,
    arguments: tuple[str, ...],
) -> BatchSubmission:
    shape = shape_of(read)
    notes = list(shape.notes)
    said_name = read.get("job-name") or name or "sbatch"
    plan = replace(
        _build_batch_plan(read, shape, here, said_name, arguments), script=path
    )
    environment = exported(read.get("export"), here.environment, notes)
    spec: dict[str, Any] = {
        "name": plain_name(said_name),
        "run": command_of(script, plan),
        "per": "node",
        "env": environment,
        "secrets": [OWN_TOKEN],
        **job_fields(read, shape, here, notes),
    }
    if (array := read.get("array")) is not None:
        spec["array"] = array
    if read.has("no-requeue") and not read.has("requeue"):
        spec["retry"] = {"infra": 0}
    dependencies, singleton = afters(read.get("dependency"))
    if dependencies:
        spec["after"] = dependencies
    if read.noted:
        ignored = ", ".join(f"--{option_name}" for option_name in read.noted)
        notes.append(
            f"note: {ignored}: ignored by Corral (see docs/reference/slurm-options.md)"
        )
    return BatchSubmission(
        spec=spec, read=read, plan=plan, notes=tuple(notes), singleton=singleton
    )


def job_fields(
    read: ParsedOptions, shape: SlurmShape, here: Here, notes: list[str]
) -> dict[str, Any]:
    """Return the common options of sbatch and srun as fields of a spec.

    Raises: SlurmRefusal.
    """
    gpu: Any = (
        f"{shape.gpu_type}:{shape.gpus_per_node}"
        if shape.gpu_type
        else shape.gpus_per_node
    )
    memory = f"{shape.memory_bytes}B" if shape.memory_bytes else None
    resources = {"cpu": shape.cpus_per_node, "gpu": gpu or None, "memory": memory}
    limit = value_forms.seconds(read.get("time") or "0")
    fields_of_job: dict[str, Any] = {
        "nodes": shape.nodes,
        "resources": {key: value for key, value in resources.items() if value},
        "elastic": {"min_nodes": shape.fewest, "max_nodes": shape.nodes}
        if shape.fewest < shape.nodes
        else None,
        "queue": queue_of(read, notes),
        "priority": priority_of(read, notes),
        "max_duration": f"{limit}s" if limit else None,
        "warn": _parse_signal_option(read.get("signal"), limit, notes),
        "constraints": _constraints(read, shape),
        "exclusive": True if read.has("exclusive") else None,
        "topology": "spread" if read.has("spread-job") else None,
        "begin": _parse_begin_time(read, here),
        "start_by": _start_by(read, here, limit),
        "token": read.get("corral-token"),
    }
    return {
        key: value
        for key, value in fields_of_job.items()
        if value not in (None, {}, "")
    }


def plain_name(text: str) -> str:
    """Return a valid job name that is close to the text."""
    base = os.path.basename(text.rstrip("/")) or text
    safe_name = re.sub(r"[^A-Za-z0-9._-]+", "-", base, flags=re.ASCII)[:55].strip("._-")
    return safe_name if is_name(safe_name) else "sbatch"


def queue_of(read: ParsedOptions, notes: list[str]) -> str | None:
    partition = read.get("partition")
    if partition is None:
        return None
    first_partition, comma, _ = partition.partition(",")
    if comma:
        notes.append(
            f"note: only the first of the partitions {partition} is used: "
            f"{first_partition}"
        )
    return first_partition


def priority_of(read: ParsedOptions, notes: list[str]) -> int | None:
    """Return the priority: that of --priority, else of --qos, minus --nice; None if it
    is 0."""
    qos = read.get("qos")
    if qos is not None and qos not in PRIORITIES:
        notes.append(
            f"note: --qos={qos} is ignored: it is not one of {', '.join(PRIORITIES)}"
        )
    base = PRIORITIES.get(qos or "", 0)
    if (priority_text := read.get("priority")) is not None:
        base = (
            0
            if priority_text.upper() == "TOP"
            else value_forms.count(priority_text, "--priority", least=0)
        )
    nice = read.get("nice")
    if nice is not None:
        if not re.fullmatch(r"-?\d{0,9}", nice):
            raise SlurmRefusal(f'Invalid --nice value "{nice}"')
        base -= int(nice or 100)
    return max(-10_000, min(10_000, base)) or None


def _parse_signal_option(
    signal: str | None, limit: int | None, notes: list[str]
) -> dict[str, Any] | None:
    if signal is None:
        return None
    number, warning_seconds = value_forms.warning(signal)
    if limit is None:
        notes.append("note: --signal is ignored: it requires a time limit (--time)")
        return None
    return {"signal": number, "before": f"{max(1, min(warning_seconds, limit - 1))}s"}


def _constraints(read: ParsedOptions, shape: SlurmShape) -> dict[str, Any]:
    constraint_fields: dict[str, Any] = {}
    for constraint_text in filter(
        None, re.split(r"[&,]", read.get("constraint") or "")
    ):
        if re.search(r"[|\[\]*()]", constraint_text):
            raise SlurmRefusal(
                f"Invalid feature specification: {read.get('constraint')}",
                hint="write labels that all nodes of the job have, joined by &: "
                "-C 'ib&zone=a'",
            )
        label, sign, value = constraint_text.strip().partition("=")
        constraint_fields[label] = value if sign else True
    try:
        on = expand(read.get("nodelist") or "") if read.get("nodelist") else []
        off = expand(read.get("exclude") or "") if read.get("exclude") else []
    except ValueError as error:
        raise SlurmRefusal(f"Invalid node name specified: {error}") from None
    if on and len(on) < shape.nodes:
        raise SlurmRefusal(
            f"--nodelist names {len(on)} nodes, but the job requires {shape.nodes}",
            hint=f"name at least {shape.nodes} nodes in --nodelist",
        )
    if on:
        constraint_fields["node"] = [
            node_name for node_name in on if node_name not in off
        ]
    elif off:
        constraint_fields["node"] = {"not": off}
    return constraint_fields


def _parse_begin_time(read: ParsedOptions, here: Here) -> str | None:
    begin_text = read.get("begin")
    return value_forms.moment(begin_text, here.now).isoformat() if begin_text else None


def _start_by(read: ParsedOptions, here: Here, limit: int | None) -> str | None:
    deadline_text = read.get("deadline")
    if deadline_text is None:
        return None
    deadline = value_forms.moment(deadline_text, here.now, "--deadline")
    latest = deadline - timedelta(seconds=limit or 0)
    if latest <= here.now:
        raise SlurmRefusal(
            f"Incorrect deadline specification {deadline_text}: the job "
            "cannot end by then"
        )
    return latest.isoformat()


def afters(text: str | None) -> tuple[list[dict[str, str]], bool]:
    """Parse --dependency. Return (the dependencies of the job, whether it waits for all
    jobs of the same name).

    Raises: SlurmRefusal for a dependency that is not supported.
    """
    dependencies: list[dict[str, str]] = []
    singleton = False
    for dependency_text in filter(None, (text or "").split(",")):
        kind, *ids = dependency_text.split(":")
        if kind == "singleton" and not ids:
            singleton = True
            continue
        if kind not in _ON or not ids or "?" in dependency_text:
            raise SlurmRefusal(
                f"Job dependency problem: {dependency_text}",
                hint="use after, afterok, afternotok or afterany, each with "
                ":ID[:ID...], or singleton, joined by commas",
            )
        dependencies += [
            {"job": id_of(dependency_id), "on": _ON[kind]} for dependency_id in ids
        ]
    return dependencies, singleton


def exported(
    said: str | None, environment: Mapping[str, str], notes: list[str]
) -> dict[str, str]:
    """Return the environment variables that --export sends with the job.

    ALL leaves out variables whose names look like secrets, because a spec is stored in
    plain text.
    """
    export_entries = [
        entry_text
        for entry_text in re.split(r",(?=[A-Za-z_])", said or "ALL")
        if entry_text
    ]
    sent_variables: dict[str, str] = {}
    if "ALL" in export_entries:
        sendable_variables = {
            key: value for key, value in environment.items() if _may_be_sent(key, value)
        }
        secret_names = sorted(
            key for key in sendable_variables if _SECRET.fullmatch(key)
        )
        sent_variables = {
            key: value
            for key, value in sendable_variables.items()
            if key not in secret_names
        }
        named_variables = {entry.partition("=")[0] for entry in export_entries}
        if unnamed_secrets := [
            key for key in secret_names if key not in named_variables
        ]:
            notes.append(
                "note: not passed to the job, because the name looks like a secret: "
                f"{', '.join(unnamed_secrets)}; "
                "name it in --export, or run: corral secret set NAME"
            )
    for export_entry in export_entries:
        name, sign, value = export_entry.partition("=")
        if export_entry in ("ALL", "NONE", "NIL"):
            continue
        if not _VARIABLE.fullmatch(name):
            raise SlurmRefusal(
                f"Invalid --export: {export_entry}; use ALL, NONE, NAME or NAME=VALUE"
            )
        if sign or name in environment:
            sent_variables[name] = value if sign else environment[name]
    return {key: sent_variables[key] for key in sorted(sent_variables)}


def _may_be_sent(name: str, value: str) -> bool:
    is_variable = _VARIABLE.fullmatch(name) and not _NOT_SENT.fullmatch(name)
    plain = "\0" not in value and not any(
        "\ud800" <= letter <= "\udfff" for letter in value
    )
    return (
        bool(is_variable)
        and name not in fields.SET_BY_CORRAL
        and plain
        and len(value) <= 32_768
    )


def _build_batch_plan(
    read: ParsedOptions,
    shape: SlurmShape,
    here: Here,
    name: str,
    arguments: tuple[str, ...],
) -> BatchPlan:
    chdir = os.path.normpath(os.path.join(here.directory, read.get("chdir") or "."))
    array = read.get("array")
    mode = (read.get("open-mode") or "truncate")[:1]
    if mode not in "at":
        raise SlurmRefusal(
            f"Invalid --open-mode argument: {read.get('open-mode')}; use append or "
            "truncate"
        )
    return BatchPlan(
        name=name,
        submit_dir=here.directory,
        submit_host=here.host,
        chdir=chdir,
        output=read.get("output")
        or (paths.ARRAY if array is not None else paths.BATCH),
        error=read.get("error"),
        input=read.get("input"),
        append=mode == "a",
        arguments=arguments,
        tasks=shape.tasks,
        tasks_given=any(read.has(task_option) for task_option in _TASKS),
        tasks_per_node=shape.tasks_per_node,
        cpus_per_task=shape.cpus_per_task,
        cpus_given=read.has("cpus-per-task"),
        gpus_per_node=shape.gpus_per_node,
        task_gpus=shape.task_gpus,
        memory_bytes_per_node=shape.memory_bytes,
        time_seconds=value_forms.seconds(read.get("time") or "0"),
        array=None if array is None else _parse_array(array),
        partition=(read.get("partition") or "default").partition(",")[0],
    )


def _parse_array(text: str) -> tuple[int, int, int, int]:
    """Return (count, lowest index, highest index, step) of a job array.

    Raises: SlurmRefusal for an invalid array.
    """
    try:
        indices = read_array(text).indices
    except fields.WrongValue as error:
        raise SlurmRefusal(
            f"Invalid job array specification: {error.text}", hint=error.hint
        ) from None
    step = indices[1] - indices[0] if len(indices) > 1 else 1
    return len(indices), indices[0], indices[-1], step
