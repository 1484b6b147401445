"""Diagnosis of a failed attempt from the last output of all its ranks."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from corral.domain.attempt import Attempt, Exit
from corral.domain.cause import Cause
from corral.domain.culprits import is_rank
from corral.domain.diagnosis import RankEnd, RankEnds
from corral.domain.failure_class import Failure, FailureKind
from corral.domain.ids import NodeId
from corral.domain.job import JobSpec
from corral.domain.observed_state import Seen
from corral.domain.rank_layout import ranks_on
from corral.domain.trouble_kind import TroubleKind
from corral.health.gang_failure import failure_of
from corral.reconcile.changeset import Draft

PLAIN: Final = frozenset(  # a signal says it already, an exit code does not
    {
        FailureKind.CRASH,
        FailureKind.KILLED,
        FailureKind.INTERRUPTED,
        FailureKind.HOST_MEMORY,
    }
)
# what a program fails of where it cannot write, log included
OF_FULL_DISK: Final = frozenset(
    {
        FailureKind.UNKNOWN,
        FailureKind.PROGRAM,
        FailureKind.FILES,
        FailureKind.DATA,
        FailureKind.CHECKPOINT,
        FailureKind.CRASH,
        FailureKind.DISK_FULL,
        FailureKind.QUOTA,
    }
)
PROMPT: Final = 300  # characters of it that are quoted
READ_ONLY: Final = "Read-only file system"
SYSTEM: Final = re.compile(r"['\"‘ ]/(usr|etc|s?bin|lib\w*|sys|proc|boot)/")


def diagnosed(
    draft: Draft, attempt: Attempt, spec: JobSpec, seen: Mapping[NodeId, Seen]
) -> Attempt:
    """Return the attempt with the class, culprit and evidence of its failure, if a
    failed rank is its culprit. `seen`: the reports by node. The cluster is charged for
    a fault of a machine, whatever exit code a program had. The ranks of a hung attempt
    were stopped, and their output is not the cause."""
    if (
        not is_rank(attempt.culprit)
        or attempt.cause not in (Cause.USER, Cause.INFRA)
        or attempt.failure == FailureKind.STALL
    ):
        return attempt
    rank_ends = tuple(_rank_ends(attempt, spec, seen))
    failure = _diagnose_failure(draft, attempt, rank_ends)
    if failure is None:
        return attempt
    if _is_the_images(failure, spec):
        failure = replace(failure, kind=FailureKind.PERMISSION, step=None)
    exit = next(
        (rank_end.exit for rank_end in rank_ends if rank_end.rank == failure.rank), None
    )
    by_full_disk = exit is not None and exit.disk_full and failure.kind in OF_FULL_DISK
    if by_full_disk:
        failure = replace(failure, kind=FailureKind.DISK_FULL, step=None)
    return replace(
        attempt,
        failure=failure.kind,
        quote=failure.quote,
        failed_at=failure.place,
        next_step=failure.step,
        culprit=failure.culprit,
        failed_on=failure.node,
        evidence=_evidence_text(failure, exit),
        cause=Cause.INFRA
        if failure.meaning.is_infra or by_full_disk
        else attempt.cause,
        exit_code=attempt.exit_code if exit is None or exit.clean else exit.shell_code,
    )


def left_behind(
    draft: Draft, attempt: Attempt, spec: JobSpec, seen: Mapping[NodeId, Seen]
) -> Attempt:
    """Return an attempt that was stopped at its time limit, with the error of a child
    process on which one of its ranks was waiting."""
    if attempt.failure == FailureKind.INPUT:
        return replace(
            attempt, quote=_last_output_line(_rank_ends(attempt, spec, seen))
        )
    if attempt.failure not in (None, FailureKind.CHILD):
        return attempt
    rank_ends = tuple(
        replace(rank_end, is_late=True) for rank_end in _rank_ends(attempt, spec, seen)
    )
    failure = _diagnose_failure(draft, attempt, rank_ends)
    if failure is None:
        return attempt
    return replace(
        attempt,
        failure=FailureKind.CHILD,
        quote=failure.quote,
        failed_at=failure.place,
        failed_on=failure.node,
    )


def _last_output_line(ends: Iterable[RankEnd]) -> str:
    """Return the last line that one of the ranks printed, without the notes of its
    node."""
    for rank_end in ends:
        own_lines = [
            row.partition("[corral]")[0].strip() for row in rank_end.tail.split("\n")
        ]
        if printed_lines := [row for row in own_lines if row]:
            return "".join(
                letter for letter in printed_lines[-1] if letter.isprintable()
            )[-PROMPT:]
    return ""


def _diagnose_failure(draft: Draft, attempt: Attempt, ends: RankEnds) -> Failure | None:
    """Return why the ranks failed, as far as it is known; None if it is not known.

    If last lines are read outside the event loop, request a reading of those lines that
    are not covered yet.
    """
    diagnoses = draft.facts.diagnoses
    if diagnoses is None or not any(rank_end.tail for rank_end in ends):
        return failure_of(ends)
    key = (attempt.job, attempt.number)
    diagnosis = diagnoses.get(key)
    if diagnosis is None or not diagnosis.covers(ends):
        draft.unread[key] = ends
    return diagnosis.failure if diagnosis is not None else None


def _is_the_images(failure: Failure, spec: JobSpec) -> bool:
    """Return whether the failed write went to a read-only image or system folder. These
    are always read-only, so the program would fail on every node (0064)."""
    if failure.kind != FailureKind.STORAGE or READ_ONLY not in failure.quote:
        return False
    checkpoint_path = spec.checkpoint.path if spec.checkpoint is not None else None
    if checkpoint_path is not None and checkpoint_path in failure.quote:
        return False
    return spec.image is not None or SYSTEM.search(failure.quote) is not None


def _rank_ends(
    attempt: Attempt, spec: JobSpec, seen: Mapping[NodeId, Seen]
) -> Iterator[RankEnd]:
    for node in attempt.nodes:
        if (attempt_seen := seen.get(node)) is not None:
            exits, tails = dict(attempt_seen.exits), dict(attempt_seen.tails)
            for rank in ranks_on(spec, attempt, node):
                tail = tails.get(rank, "")
                yield RankEnd(rank=rank, node=node, exit=exits.get(rank), tail=tail)


def _evidence_text(failure: Failure, exit: Exit | None) -> str:
    if exit is None or (exit.clean and failure.kind == FailureKind.HANG):
        return failure.meaning.text
    if exit.disk_full and failure.kind == FailureKind.DISK_FULL:
        return f"{exit_text(exit)}: the disk of node {failure.node} was full"
    is_plain = exit.signal is not None or exit.out_of_memory
    if failure.kind == FailureKind.UNKNOWN or (failure.kind in PLAIN and is_plain):
        return exit_text(exit)
    return f"{exit_text(exit)}: {failure.meaning.text}"


def exit_text(exit: Exit) -> str:
    """Return a readable text of a rank's exit."""
    if exit.out_of_memory:
        text = f"out of memory: peak {(exit.peak_bytes or 0) / 1e6:.0f} MB"
        if exit.limit_bytes is None:
            return f"{text}; the machine had no memory left"
        return f"{text}, limit {exit.limit_bytes / 1e6:.0f} MB"
    if exit.signal is not None:
        return f"killed by signal {exit.signal}"
    return f"exit code {exit.code}"


def class_of_trouble(kind: TroubleKind, cause: Cause) -> FailureKind:
    """Return the failure class for the kind of trouble that a shim or an agent reports."""
    if kind == TroubleKind.SETUP:
        return FailureKind.SETUP
    return FailureKind.CLUSTER if cause == Cause.INFRA else FailureKind.COMMAND
