"""Conversion of the options of `corral run` to a spec. The spec reader validates the
values."""

import os
import re
import secrets
import shlex
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from corral.boot.clock import SystemClock
from corral.cli.error_output import Usage
from corral.cli.time_options import RequestOptions, forms_of, nodes_of, number
from corral.domain.errors import SpecInvalid


@dataclass(frozen=True, slots=True, kw_only=True)
class Typed:
    """The options of one `corral run`. None: the option was not given."""

    command: tuple[str, ...]
    name: str | None = None
    nodes: str | None = None
    gpus: str | None = None
    cpus: str | None = None
    memory: str | None = None
    queue: str | None = None
    priority: str | None = None
    time: str | None = None
    env: tuple[str, ...] = ()
    secret: tuple[str, ...] = ()
    token: str | None = None
    per: str | None = None
    checkpoint: str | None = None
    origin: str | None = None
    workdir: Path | None = None
    no_workdir: bool = False
    after: tuple[str, ...] = ()
    array: str | None = None
    retry: int | None = None
    request_options: RequestOptions = RequestOptions()


def spec_of(typed: Typed) -> dict[str, Any]:
    """Return the spec for the options.

    Raises: Usage if there is no command, SpecInvalid if an option has an invalid form.
    """
    amounts = {
        "gpu": number(typed.gpus),
        "cpu": number(typed.cpus),
        "memory": typed.memory,
    }
    resources = {name: value for name, value in amounts.items() if value is not None}
    fields = {
        "name": typed.name or made_name(typed.command),
        "run": command_text(typed.command),
        **nodes_of(typed.nodes),
        "resources": resources,
        "any_of": forms_of(typed.request_options.any_of, resources),
        "queue": typed.queue,
        "priority": number(typed.priority),
        "max_duration": typed.time,
        "env": dict(assignment(pair) for pair in typed.env),
        "secrets": list(typed.secret),
        "token": typed.token,
        "per": typed.per,
        "checkpoint": _drop_empty_fields(
            {"path": typed.checkpoint, "from": typed.origin}
        ),
        "workdir": workdir_of(typed),
        "after": [_parse_dependency(text) for text in typed.after],
        "array": typed.array,
        "retry": {"user": typed.retry} if typed.retry is not None else None,
        **typed.request_options.fields(_local_time()),
    }
    return _drop_empty_fields(fields)


def _drop_empty_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields, without None, [] and {}."""
    return {
        name: value for name, value in fields.items() if value not in (None, [], {})
    }


def _local_time() -> datetime:
    """Return the current time in the local time zone."""
    return datetime.fromtimestamp(SystemClock().wall(), UTC).astimezone()


def command_text(command: Sequence[str]) -> str:
    """Return the shell command of a job. A single word is a line for the shell; several
    words are a program and its arguments, which are quoted.

    Raises: Usage if there is no command.
    """
    if not command:
        raise Usage(
            "the command of the job is missing",
            hint="write it after --, for example: corral run -- python train.py",
        )
    return command[0] if len(command) == 1 else shlex.join(command)


def made_name(command: Sequence[str]) -> str:
    """Return a job name made of the script or program and of four random hexadecimal
    digits, which make it unique."""
    command_words = [
        command_word
        for line in command
        for command_word in line.split()
        if not command_word.startswith("-")
    ]
    scripts = [
        script_name
        for script_name in command_words
        if script_name.endswith((".py", ".sh"))
    ]
    base = Path((scripts or command_words or ["job"])[0]).stem
    plain = re.sub(r"[^A-Za-z0-9]+", "-", base).strip("-")[:40] or "job"
    return f"{plain}-{secrets.token_hex(2)}"


def workdir_of(typed: Typed) -> str | None:
    """Return the directory that is sent with the job: the given one, else the current
    directory unless it is the directory of temporary files. None: no directory is sent.
    """
    if typed.no_workdir:
        return None
    if typed.workdir is not None:
        return str(typed.workdir.expanduser().absolute())
    current_dir = Path.cwd()
    return (
        None
        if current_dir == Path(tempfile.gettempdir()).resolve()
        else str(current_dir)
    )


def is_around_home(folder: Path) -> bool:
    """Return whether the folder is the home directory or contains it, as / does."""
    return Path(os.path.expanduser("~")).resolve().is_relative_to(folder)


def assignment(pair: str) -> tuple[str, str]:
    """Parse an environment variable: K=V, or K alone for its value in the local
    environment.

    Raises: SpecInvalid if K alone is not set.
    """
    name, sign, value = pair.partition("=")
    if not sign and name not in os.environ:
        raise SpecInvalid(
            f"--env {name}: the variable {name} is not set in this shell",
            hint=f"write: --env {name}=VALUE",
        )
    return name, value if sign else os.environ[name]


def _parse_dependency(text: str) -> Mapping[str, str]:
    """Parse a dependency: JOB, or JOB:failed. The condition is done, failed, ended or
    started."""
    job, colon, on = text.partition(":")
    return {"job": job, "on": on} if colon else {"job": job}
