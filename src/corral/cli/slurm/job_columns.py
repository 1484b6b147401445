"""Columns of squeue, sacct and scontrol for a job. Only `SlurmJobRow` does I/O."""

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any, Final

from corral.cli.slurm.columns import Field
from corral.cli.slurm.slurm_states import COMPACT, exit_text, reason_of, state_of
from corral.domain.units import spans_text
from corral.wire.slurm import value_forms
from corral.wire.slurm.batch_plan import BatchPlan, plan_in
from corral.wire.slurm.hostlist import compress_sorted
from corral.wire.slurm.ids import number_of, raw_of
from corral.wire.slurm.paths import file_name

Row = Mapping[str, Any]
UNKNOWN: Final = "N/A"


class SlurmJobRow:
    """A job as a row of a listing. `whole` fetches the details that the listing does
    not hold, when a column shows them. `indices`: indices of the waiting jobs of one
    array that this row represents."""

    def __init__(
        self,
        row: Row,
        now: float,
        whole: Callable[[str], Row],
        indices: Sequence[int] = (),
    ) -> None:
        self.row = row
        self.now = now
        self.indices = tuple(indices)
        self._whole = whole

    @cached_property
    def detail(self) -> Row:
        return self.row if "attempts" in self.row else self._whole(self.row["id"])

    @cached_property
    def plan(self) -> BatchPlan | None:
        """Return how the batch script of the job runs; None if the job has no batch
        script, or belongs to another user."""
        return plan_in(self.detail["run"] or "")

    @property
    def directory(self) -> str | None:
        """Return the directory in which the batch script of the job starts; None
        without a batch script."""
        return None if self.plan is None else self.plan.chdir

    @property
    def command(self) -> str | None:
        """Return the path of the job's script; for a job without a script, the first
        line of its command."""
        if self.plan is not None:
            return self.plan.script or None
        return str(self.detail["run"] or "").split("\n", 1)[0] or None

    def file(self, pattern: str | None) -> str | None:
        """Return the full path of an output file that `pattern` names. Fields of the
        pattern are filled in if they are known before the job runs."""
        if self.plan is None:
            return None
        number = raw_of(self.row["id"])
        index = self.row["array_index"]
        known_columns = {
            "j": number,
            "J": number,
            "A": self.array,
            "a": "4294967294" if index is None else str(index),
            "x": self.plan.name,
            "u": str(self.row["owner"]),
        }
        return os.path.join(
            self.plan.chdir, file_name(pattern or self.plan.output, known_columns)
        )

    @property
    def id(self) -> str:
        if self.indices:
            return f"{self.array}_[{spans_text(self.indices)}]"
        return number_of(self.row["id"])

    @property
    def array(self) -> str:
        return number_of(self.row["array"] or self.row["id"])

    @property
    def name(self) -> str:
        index = self.row["array_index"]
        name = str(self.row["name"])
        return name if index is None else name.removesuffix(f"_{index}")

    @property
    def state(self) -> str:
        return state_of(self.row)

    @property
    def nodes(self) -> str:
        return compress_sorted(self.row["nodes"])

    @property
    def cpus(self) -> int:
        shape = self.row["shape"]
        return max(1, math.ceil(float(shape["cpus_per_node"]))) * int(shape["nodes"])

    @property
    def gpus(self) -> str:
        shape = self.row["shape"]
        if not shape["gpus_per_node"]:
            return UNKNOWN
        kind = f"{shape['gpu_type']}:" if shape["gpu_type"] else ""
        return f"gres:gpu:{kind}{shape['gpus_per_node']:g}"

    @property
    def memory(self) -> str:
        size = int(self.row["shape"]["memory_bytes_per_node"])
        for unit, unit_bytes in (("G", 2**30), ("M", 2**20)):
            if size and size % unit_bytes == 0:
                return f"{size // unit_bytes}{unit}"
        return f"{size / 2**20:.0f}M" if size else "0"

    @property
    def limit_seconds(self) -> float | None:
        limit = self.row["max_duration_seconds"]
        return None if limit is None else float(limit)

    @property
    def used_seconds(self) -> float:
        started = self.row["started_at"]
        if started is None or self.state == "PENDING":
            return 0.0
        return max(0.0, float(self.row["ended_at"] or self.now) - float(started))

    @property
    def ends_at(self) -> float | None:
        started, limit = self.row["started_at"], self.limit_seconds
        if self.row["ended_at"] is not None:
            return float(self.row["ended_at"])
        return None if started is None or limit is None else float(started) + limit

    @property
    def left_seconds(self) -> float | None:
        return (
            None
            if self.limit_seconds is None
            else self.limit_seconds - self.used_seconds
        )

    @property
    def where_or_why(self) -> str:
        if self.state in (
            "PENDING",
            "REQUEUED",
            "FAILED",
            "TIMEOUT",
            "NODE_FAIL",
            "DEADLINE",
        ):
            return f"({reason_of(self.row)})"
        return self.nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmColumn:
    """A column: its letter for squeue -o, and its names for squeue -O and for sacct."""

    letter: str
    name: str
    title: str
    value: Callable[[SlurmJobRow], str]


def moment(at: float | None, unknown: str = UNKNOWN) -> str:
    """Return a time in the local time zone, in Slurm's form. For example:
    2026-11-22T08:00:00. None gives `unknown`."""
    if at is None:
        return unknown
    return datetime.fromtimestamp(at).astimezone().strftime("%Y-%m-%dT%H:%M:%S")


def _array_index_text(job: SlurmJobRow) -> str:
    if job.indices:
        return spans_text(job.indices)
    index = job.row["array_index"]
    return UNKNOWN if index is None else str(index)


KNOWN: Final = (
    SlurmColumn(letter="i", name="jobarrayid", title="JOBID", value=lambda job: job.id),
    SlurmColumn(
        letter="A", name="jobid", title="JOBID", value=lambda job: raw_of(job.row["id"])
    ),
    SlurmColumn(
        letter="F", name="arrayjobid", title="ARRAY_JOB_ID", value=lambda job: job.array
    ),
    SlurmColumn(
        letter="K", name="arraytaskid", title="ARRAY_TASK_ID", value=_array_index_text
    ),
    SlurmColumn(
        letter="P",
        name="partition",
        title="PARTITION",
        value=lambda job: job.row["queue"],
    ),
    SlurmColumn(letter="j", name="name", title="NAME", value=lambda job: job.name),
    SlurmColumn(
        letter="u", name="username", title="USER", value=lambda job: job.row["owner"]
    ),
    SlurmColumn(
        letter="a", name="account", title="ACCOUNT", value=lambda job: job.row["queue"]
    ),
    SlurmColumn(
        letter="t",
        name="statecompact",
        title="ST",
        value=lambda job: COMPACT[job.state],
    ),
    SlurmColumn(letter="T", name="state", title="STATE", value=lambda job: job.state),
    SlurmColumn(
        letter="M",
        name="timeused",
        title="TIME",
        value=lambda job: value_forms.duration_text(job.used_seconds),
    ),
    SlurmColumn(
        letter="l",
        name="timelimit",
        title="TIME_LIMIT",
        value=lambda job: value_forms.duration_text(job.limit_seconds),
    ),
    SlurmColumn(
        letter="L",
        name="timeleft",
        title="TIME_LEFT",
        value=lambda job: value_forms.duration_text(job.left_seconds),
    ),
    SlurmColumn(
        letter="D",
        name="numnodes",
        title="NODES",
        value=lambda job: str(job.row["shape"]["nodes"]),
    ),
    SlurmColumn(
        letter="C", name="numcpus", title="CPUS", value=lambda job: str(job.cpus)
    ),
    SlurmColumn(
        letter="m", name="minmemory", title="MIN_MEMORY", value=lambda job: job.memory
    ),
    SlurmColumn(
        letter="b",
        name="tres-per-node".replace("-", ""),
        title="TRES_PER_NODE",
        value=lambda job: job.gpus,
    ),
    SlurmColumn(
        letter="R",
        name="reasonlist",
        title="NODELIST(REASON)",
        value=lambda job: job.where_or_why,
    ),
    SlurmColumn(
        letter="N", name="nodelist", title="NODELIST", value=lambda job: job.nodes
    ),
    SlurmColumn(
        letter="r", name="reason", title="REASON", value=lambda job: reason_of(job.row)
    ),
    SlurmColumn(
        letter="S",
        name="starttime",
        title="START_TIME",
        value=lambda job: moment(job.row["started_at"]),
    ),
    SlurmColumn(
        letter="e",
        name="endtime",
        title="END_TIME",
        value=lambda job: moment(job.ends_at),
    ),
    SlurmColumn(
        letter="V",
        name="submittime",
        title="SUBMIT_TIME",
        value=lambda job: moment(job.row["submitted_at"]),
    ),
    SlurmColumn(
        letter="Q",
        name="prioritylong",
        title="PRIORITY",
        value=lambda job: str(job.row["priority"]),
    ),
    SlurmColumn(
        letter="p",
        name="priority",
        title="PRIORITY",
        value=lambda job: str(job.row["priority"]),
    ),
    SlurmColumn(letter="q", name="qos", title="QOS", value=lambda job: "normal"),
    SlurmColumn(
        letter="h",
        name="oversubscribe",
        title="OVER_SUBSCRIBE",
        value=lambda job: "NO" if job.detail["place"]["exclusive"] else "OK",
    ),
    SlurmColumn(
        letter="f",
        name="feature",
        title="FEATURES",
        value=lambda job: "&".join(job.detail["place"]["constraints"]) or "(null)",
    ),
    SlurmColumn(
        letter="E", name="dependency", title="DEPENDENCY", value=lambda job: "(null)"
    ),
    SlurmColumn(
        letter="k", name="comment", title="COMMENT", value=lambda job: "(null)"
    ),
    SlurmColumn(
        letter="v", name="reservation", title="RESERVATION", value=lambda job: "(null)"
    ),
    SlurmColumn(
        letter="B",
        name="batchhost",
        title="EXEC_HOST",
        value=lambda job: next(iter(job.row["nodes"]), "n/a"),
    ),
    SlurmColumn(
        letter="o",
        name="command",
        title="COMMAND",
        value=lambda job: job.command or "(null)",
    ),
    SlurmColumn(
        letter="Z",
        name="workdir",
        title="WORK_DIR",
        value=lambda job: job.directory or "(null)",
    ),
)
_TIMES: Final = "lLM"
LETTERS: Final = {
    slurm_column.letter: Field(
        title=slurm_column.title,
        value=slurm_column.value,
        is_cut=slurm_column.letter not in _TIMES,
    )
    for slurm_column in KNOWN
}
NAMES: Final = {
    slurm_column.name: Field(title=slurm_column.title, value=slurm_column.value)
    for slurm_column in KNOWN
}


def exit_of(job: SlurmJobRow) -> str:
    return exit_text(job.row)
