"""Options of `corral run` for time, placement and image, and their conversion to fields
of a spec."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any, Final

from cyclopts import Parameter

from corral.cli.option_types import (
    Image,
    JobName,
    LabelRule,
    RequestForm,
    SignalName,
    StartTime,
    TopologyRule,
)
from corral.domain.errors import SpecInvalid

_CLOCK: Final = re.compile(r"(\d{1,2}):(\d\d)(?::(\d\d))?", re.ASCII)
_RANGE: Final = re.compile(r"(\d{1,9})(?:-|\.\.)(\d{1,9})", re.ASCII)
_FORM: Final = re.compile(r"(?:(\d{1,9})x)?(.+)", re.ASCII)
_LABEL: Final = re.compile(r"([^=!]+)(?:(!?=)(.*))?", re.DOTALL)


def _make_option(help: str, *names: str) -> Any:
    return Parameter(
        name=list(names) or None, negative="", show_default=False, help=help
    )


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class RequestOptions:
    """Options for the start time, the warning before the time limit, the nodes and the
    image of a job."""

    image: Annotated[
        Image | None,
        _make_option(
            "Image in which the ranks run: ubuntu:24.04 from a registry, or an "
            "Apptainer file on the nodes, /data/torch.sif (default: none).",
            "--image",
        ),
    ] = None
    any_of: Annotated[
        tuple[RequestForm, ...],
        _make_option(
            "Alternative to --nodes and --gpus, used if only it can start: a100:8, or "
            "2xa100:8 for 2 nodes; may be repeated.",
            "--any-of",
        ),
    ] = ()
    begin: Annotated[
        StartTime | None,
        _make_option(
            "Earliest start: 30m (from now), 16:00 or 2026-11-22T08:00, in local time "
            "(default: now).",
            "--begin",
        ),
    ] = None
    start_by: Annotated[
        StartTime | None,
        _make_option(
            "Latest start, written as in --begin: the job fails if it has not started "
            "by then (default: it waits without limit).",
            "--start-by",
        ),
    ] = None
    signal: Annotated[
        SignalName | None,
        _make_option(
            "Signal to send to the ranks before the time limit of --time: USR1, or "
            "USR1@2m to send it 2 minutes before.",
            "--signal",
        ),
    ] = None
    constraint: Annotated[
        tuple[LabelRule, ...],
        _make_option(
            "Label that every node of the job must have: zone=a, zone=a,b (a or b) or "
            "zone!=a (not a); may be repeated.",
            "--constraint",
            "-C",
        ),
    ] = ()
    topology: Annotated[
        TopologyRule | None,
        _make_option(
            "Distance between the nodes: prefer (close together if possible; default), "
            "spread (far apart), or require:rack (in one rack; also nvlink, pod).",
            "--topology",
        ),
    ] = None
    exclusive: Annotated[
        bool,
        _make_option("Let no other job use the nodes of this job.", "--exclusive"),
    ] = False
    apart_from: Annotated[
        tuple[JobName, ...],
        _make_option(
            "Name of a job with which this job must not share a node; may be repeated.",
            "--apart-from",
        ),
    ] = ()
    preemptible: Annotated[
        bool,
        _make_option(
            "Let other jobs stop this job and take its GPUs at any time; it then waits "
            "to start again.",
            "--preemptible",
        ),
    ] = False

    def fields(self, now: datetime) -> dict[str, Any]:
        """Return the options as fields of a spec file. `now`: the current local time,
        with its zone.

        Raises: SpecInvalid if an option has an invalid form.
        """
        spec_fields = {
            "image": self.image,
            "begin": _parse_local_time(self.begin, now),
            "start_by": _parse_local_time(self.start_by, now),
            "warn": self.signal,
            "constraints": constraints_of(self.constraint),
            "topology": self.topology,
            "exclusive": self.exclusive or None,
            "apart_from": list(self.apart_from),
            "preemptible": self.preemptible or None,
        }
        return {
            name: value
            for name, value in spec_fields.items()
            if value not in (None, [], {})
        }


def _parse_local_time(text: str | None, now: datetime) -> str | None:
    """Parse a local time. A time of day means its next occurrence in the local time
    zone, and a time without a zone is local. None gives None."""
    if text is None:
        return None
    if match := _CLOCK.fullmatch(text):
        hour, minute, second = (int(group or 0) for group in match.groups())
        try:
            next_moment = now.replace(
                hour=hour, minute=minute, second=second, microsecond=0
            )
        except ValueError:
            return text
        return (
            next_moment if next_moment > now else next_moment + timedelta(days=1)
        ).isoformat()
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        return text
    return (when if when.tzinfo else when.replace(tzinfo=now.tzinfo)).isoformat()


def constraints_of(texts: Iterable[str]) -> dict[str, Any]:
    """Parse constraints of the form LABEL, LABEL=VALUE[,VALUE...] or
    LABEL!=VALUE[,VALUE...].

    Raises: SpecInvalid.
    """
    rules: dict[str, Any] = {}
    for text in texts:
        match = _LABEL.fullmatch(text)
        label = match.group(1).strip() if match else ""
        if match is None or not label:
            raise SpecInvalid(
                f"--constraint {text}: the name of the label is missing",
                hint="write, for example: --constraint zone=a",
            )
        values = (match.group(3) or "").split(",") if match.group(2) else [True]
        if label in rules:
            raise _given_twice(
                text, label, rules[label], values, negated=match.group(2) == "!="
            )
        rules[label] = {"not": values} if match.group(2) == "!=" else values
    return rules


def _given_twice(
    text: str, label: str, before: Any, values: list[Any], *, negated: bool
) -> Exception:
    """Return the error for a label for which two constraints are given. If both are =
    or both are !=, the hint shows one constraint with the values of both."""
    was_negated = isinstance(before, dict)
    sign, merged_values = (
        "!=" if negated else "=",
        [*(before["not"] if was_negated else before), *values],
    )
    hint = f"keep one: {label}=VALUE already excludes all other values"
    if was_negated == negated and True not in merged_values:
        either = "neither of them" if negated else "either of them"
        hint = (
            f"write: --constraint {label}{sign}{','.join(dict.fromkeys(merged_values))} for "
            f"{either}"
        )
    return SpecInvalid(f"--constraint {text}: {label} is given twice", hint=hint)


def forms_of(
    texts: Iterable[str], resources: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Parse alternative forms of a job: NODESxGPUS, or GPUS alone for the same number
    of nodes. `resources`: resources of each node, of which only the GPUs are replaced.

    Raises: SpecInvalid for a text of another form.
    """
    shapes: list[dict[str, Any]] = []
    for text in texts:
        match = _FORM.fullmatch(text.strip())
        if match is None:
            raise SpecInvalid(
                "--any-of: the number of GPUs is missing",
                hint="write, for example: --any-of 2xa100:8",
            )
        nodes, gpus = match.groups()
        form: dict[str, Any] = {"resources": {**resources, "gpu": number(gpus)}}
        shapes.append(form | ({"nodes": int(nodes)} if nodes else {}))
    return shapes


def number(text: str | None) -> Any:
    """Return the number in the text, or the text unchanged if it is no number. The spec
    reader validates the value later."""
    if text is None:
        return None
    if re.fullmatch(r"[+-]?\d{1,18}", text):
        return int(text)
    try:
        return float(text)
    except ValueError:
        return text


def nodes_of(text: str | None) -> dict[str, Any]:
    """Parse a number of nodes: 4, or 2-4 for as many as are free, at least 2.

    Raises: SpecInvalid for a range with the higher number first.
    """
    if text is None:
        return {}
    if match := _RANGE.fullmatch(text):
        min_nodes, max_nodes = int(match.group(1)), int(match.group(2))
        if min_nodes > max_nodes:
            raise SpecInvalid(
                f"--nodes {text}: the first number is larger than the second",
                hint=f"write: --nodes {max_nodes}-{min_nodes}",
            )
        return {
            "nodes": max_nodes,
            "elastic": {"min_nodes": min_nodes, "max_nodes": max_nodes},
        }
    return {"nodes": int(text) if re.fullmatch(r"[+-]?\d{1,9}", text) else text}
