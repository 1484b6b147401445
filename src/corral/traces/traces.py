"""Conversion of cluster logs to workloads. The logs are CSV files of jobs, SWF files,
and the output of `sacct -P` and `corral ps`."""

import gzip
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from io import TextIOWrapper
from math import ceil
from pathlib import Path

from corral.domain.errors import SpecInvalid
from corral.replay import Workload
from corral.traces.traces_corral import jobs_of_corral
from corral.traces.traces_csv import MOST_GPUS, jobs_of_csv, nodes_of_csv
from corral.traces.traces_job import LoggedJob
from corral.traces.traces_sacct import jobs_of_sacct
from corral.traces.traces_swf import jobs_of_swf

PACKED = b"\x1f\x8b"  # how each gzip begins, whatever the file's name
SHORTEST_SECONDS = 1.0  # logs count whole seconds: a job of 0 took less than one
# three centuries: what is later, or longer, is a fault of the log
LONGEST_SECONDS = 1e10
MOST_NODES = 100_000
OWN_LOG_HINT = (
    "give an existing file; for a log of this cluster run: corral ps --all --json > "
    "own.json"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """A workload read from a log. `skipped`: number of rows that cannot be replayed,
    because they have no GPUs or never ended. `rounded`: number of jobs that requested a
    fraction of a GPU, and are counted as if they requested a whole GPU."""

    workload: Workload
    queues: tuple[str, ...]
    skipped: int
    rounded: int


def read_trace(path: Path) -> Trace:
    """Read the jobs of a log. The first line determines the format: names of CSV
    columns, names of sacct's columns, JSON, or SWF.

    Raises: SpecInvalid if the log has none of these formats, or has no job.
    """
    lines = log_lines(path)
    head = next(lines, "")
    try:
        if "|" in head:
            jobs = list(jobs_of_sacct(head, lines))
        elif head.lstrip().startswith("{"):
            jobs = list(jobs_of_corral([head, *lines]))
        elif "," in head:
            jobs = list(jobs_of_csv(head, lines))
        else:
            jobs = list(jobs_of_swf([head, *lines]))
    except (ValueError, KeyError, IndexError, TypeError) as error:
        hint = (
            "give CSV with a header, SWF, or the output of sacct -a -P -o ALL or of corral ps "
            "--all --json"
        )
        raise SpecInvalid(
            f"{path} is not a log of jobs: {_fault_text(error)}", hint=hint
        ) from error
    return trace_of(str(path), jobs)


def _fault_text(error: Exception) -> str:
    """Return what is wrong in a file. The text of a KeyError is only a name."""
    if isinstance(error, KeyError):
        return f"the field {error.args[0]!r} is missing"
    if isinstance(error, TypeError):
        return f"a field has a value of the wrong type ({error})"
    return str(error)


def read_nodes(path: Path) -> list[tuple[int, str]]:
    """Read a CSV file of nodes with a column `gpus`. Return for each node (number of
    GPUs, virtual cluster `vc`, or "" without one)."""
    lines, hint = log_lines(path), "give CSV with a column gpus, one row per node"
    try:
        nodes = nodes_of_csv(next(lines, ""), lines)
    except (ValueError, KeyError, IndexError) as error:
        raise SpecInvalid(
            f"{path} is not a list of nodes: {_fault_text(error)}", hint=hint
        ) from error
    if not nodes:
        raise SpecInvalid(f"{path} has no node with GPUs", hint=hint)
    return nodes


def sizes_of(cluster: str) -> list[int]:
    """Return the GPUs of each node of a cluster. For example: 88x8 is 88 nodes with 8
    GPUs each, and 4x8+2x4 is four nodes with 8 GPUs and two with 4."""
    sizes: list[int] = []
    for node_group in cluster.split("+"):
        nodes, _, gpus = node_group.partition("x")
        if not (nodes.isdigit() and gpus.isdigit() and int(nodes) and int(gpus)):
            raise SpecInvalid(
                f"{cluster!r} is not a valid cluster",
                hint="write NODESxGPUS, for example 88x8",
            )
        if int(gpus) > MOST_GPUS or len(sizes) + int(nodes) > MOST_NODES:
            hint = f"give at most {MOST_NODES:,} nodes of {MOST_GPUS:,} GPUs"
            raise SpecInvalid(f"{cluster!r} is too large to replay on", hint=hint)
        sizes += [int(gpus)] * int(nodes)
    return sizes


def log_lines(path: Path, *, missing_hint: str = OWN_LOG_HINT) -> Iterator[str]:
    """Yield the lines of a text file, plain or gzipped.

    Raises: SpecInvalid if it cannot be read; `missing_hint`: the hint if it is missing.
    """
    try:
        with path.open("rb") as raw:
            is_packed = raw.peek(2)[:2] == PACKED
            with TextIOWrapper(
                gzip.GzipFile(fileobj=raw) if is_packed else raw
            ) as file:
                yield from file
    except FileNotFoundError:
        raise SpecInvalid(f"there is no file {path}", hint=missing_hint) from None
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise SpecInvalid(
            f"{path} cannot be read: {reason}", hint=f"run: ls -ld {path}"
        ) from error
    except UnicodeDecodeError as error:
        raise SpecInvalid(
            f"{path} is not text: {error.reason} at byte {error.start}",
            hint="give a text file, plain or gzipped",
        ) from error


def trace_of(path: str, rows: Sequence[LoggedJob]) -> Trace:
    """Return the jobs as a workload. `path`: the origin of the jobs, for messages.

    Raises: SpecInvalid if no job can be replayed.
    """
    able = [
        job for job in rows if job.gpus > 0 and job.duration >= 0 and job.submitted >= 0
    ]
    if not able:
        hint = "give jobs with a submission time, a run time, and more than 0 GPUs"
        raise SpecInvalid(f"{path} has no job with GPUs that ended", hint=hint)
    for job in able:
        if max(job.submitted, job.duration) > LONGEST_SECONDS:
            times_text = f"submitted at {job.submitted:g} s, ran {job.duration:g} s"
            hint = f"give times in seconds, at most {LONGEST_SECONDS:g}"
            raise SpecInvalid(
                f"{path}: times of job {job.name} are too large: {times_text}",
                hint=hint,
            )
    able.sort(key=lambda job: job.submitted)
    first_submit, queues = able[0].submitted, [job.queue or "-" for job in able]
    workload = Workload(
        submits=[job.submitted - first_submit for job in able],
        durations=[max(SHORTEST_SECONDS, job.duration) for job in able],
        gpus=[ceil(job.gpus) for job in able],
        queues=_encode_names(queues),
        limits=[job.limit for job in able],
        names=[job.name for job in able],
        users=_encode_names(job.user for job in able),
        kinds=_encode_names(job.kind for job in able),
    )
    return Trace(
        workload=workload,
        queues=tuple(dict.fromkeys(queues)),
        skipped=len(rows) - len(able),
        rounded=sum(job.gpus % 1 > 0 for job in able),
    )


def _encode_names(names: Iterable[str]) -> list[int]:
    """Return the names as numbers, counted from 0: equal names get the same number, and
    an empty name gets -1."""
    known_numbers: dict[str, int] = {"": -1}
    return [known_numbers.setdefault(name, len(known_numbers) - 1) for name in names]
