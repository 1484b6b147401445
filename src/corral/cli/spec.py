"""What `corral run` was given, as the spec that a file would have held. Nothing is judged here:
the spec's own reader says what is wrong."""

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
from corral.cli.failure import Usage
from corral.cli.wishes import Wishes, forms_of, nodes_of, number
from corral.domain.errors import SpecInvalid


@dataclass(frozen=True, slots=True, kw_only=True)
class Typed:
    """The options of one `corral run`. None: not given."""

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
    per: str | None = None
    checkpoint: str | None = None
    workdir: Path | None = None
    no_workdir: bool = False
    after: tuple[str, ...] = ()
    array: str | None = None
    retry: int | None = None
    wishes: Wishes = Wishes()


def spec_of(typed: Typed) -> dict[str, Any]:
    """Raises: Usage when there is no command, SpecInvalid when an option is not of its form."""
    asked = {"gpu": number(typed.gpus), "cpu": number(typed.cpus), "memory": typed.memory}
    resources = {name: value for name, value in asked.items() if value is not None}
    fields = {
        "name": typed.name or made_name(typed.command),
        "run": command_text(typed.command),
        **nodes_of(typed.nodes),
        "resources": resources,
        "any_of": forms_of(typed.wishes.any_of, resources),
        "queue": typed.queue,
        "priority": number(typed.priority),
        "max_duration": typed.time,
        "env": dict(_assignment(pair) for pair in typed.env),
        "secrets": list(typed.secret),
        "per": typed.per,
        "checkpoint": {"path": typed.checkpoint} if typed.checkpoint is not None else None,
        "workdir": workdir_of(typed),
        "after": [_after(text) for text in typed.after],
        "array": typed.array,
        "retry": {"user": typed.retry} if typed.retry is not None else None,
        **typed.wishes.fields(_now()),
    }
    return {name: value for name, value in fields.items() if value not in (None, [], {})}


def _now() -> datetime:
    """This moment, with the time zone of whoever types."""
    return datetime.fromtimestamp(SystemClock().wall(), UTC).astimezone()


def command_text(command: Sequence[str]) -> str:
    """One word is a line for the shell; several are a command and its arguments, as typed."""
    if not command:
        raise Usage("there is no command", hint="write it after --: corral run -- CMD ...")
    return command[0] if len(command) == 1 else shlex.join(command)


def made_name(command: Sequence[str]) -> str:
    """From the script, else the program; four digits make it new."""
    words = [word for line in command for word in line.split() if not word.startswith("-")]
    scripts = [word for word in words if word.endswith((".py", ".sh"))]
    base = Path((scripts or words or ["job"])[0]).stem
    plain = re.sub(r"[^A-Za-z0-9]+", "-", base).strip("-")[:40] or "job"
    return f"{plain}-{secrets.token_hex(2)}"


def workdir_of(typed: Typed) -> str | None:
    """The directory whose snapshot travels: the current one, unless that is no project."""
    if typed.no_workdir:
        return None
    if typed.workdir is not None:
        return str(typed.workdir.expanduser().absolute())
    here = Path.cwd()
    return None if here in not_projects() else str(here)


def not_projects() -> frozenset[Path]:
    """Where people merely stand: nobody wants these sent along."""
    places = ("/", tempfile.gettempdir(), os.path.expanduser("~"))
    return frozenset(Path(place).resolve() for place in places)


def _assignment(pair: str) -> tuple[str, str]:
    """K=V, or K alone: the value that it has here."""
    name, sign, value = pair.partition("=")
    if not sign and name not in os.environ:
        raise SpecInvalid(f"--env {name}: it is not set here", hint=f"write: --env {name}=VALUE")
    return name, value if sign else os.environ[name]


def _after(text: str) -> Mapping[str, str]:
    """JOB, or JOB:failed (done, failed, ended, started)."""
    job, colon, on = text.partition(":")
    return {"job": job, "on": on} if colon else {"job": job}
