"""What must hold of a chaos run, whatever was injected. Pure: a History in, violations
out.

The evidence is that of the ranks themselves, so it does not depend on what the head
believes.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Final

from tests.chaos.history import (
    AttemptRecord,
    Command,
    Fault,
    History,
    JobRecord,
    Planned,
    RankEvidence,
)

FINAL: Final = frozenset({"DONE", "FAILED", "CANCELLED"})
# of a head to which nothing happens; it is asked every two seconds
SILENT_SECONDS: Final = 20.0
# a loaded machine of two cores, beats half a second apart
LIMIT_SLACK_SECONDS: Final = 4.0
AFTER_FAULT_SECONDS: Final = 15.0  # until a part that was away has caught up
NODE_ENDS: Final = (
    "kill shim",
    "kill node",
    "full disk",
    "freeze node",
    "freeze agent",
    "freeze shim",
)
AWAY: Final = (
    "freeze node",
    "freeze agent",
    "freeze head",
    "kill agent",
    "kill head",
    "full disk",
)
OF_COMMANDS: Final = ("kill head", "kill head, two starts", "two starts", "backup")


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """`rule` is the name of what does not hold; `job` is empty where it is about
    all."""

    rule: str
    job: str
    text: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.job + ': ' if self.job else ''}{self.text}"


class Book:
    """A history by what the rules ask for."""

    def __init__(self, history: History) -> None:
        self.history = history

    @cached_property
    def jobs(self) -> Mapping[str, JobRecord]:
        return {one.job: one for one in self.history.jobs}

    @cached_property
    def plans(self) -> Mapping[str, Planned]:
        """By job id, of the jobs whose names were planned."""
        by_name = {one.name: one for one in self.history.plans}
        return {
            one.job: by_name[one.name]
            for one in self.history.jobs
            if one.name in by_name
        }

    @cached_property
    def by_name(self) -> Mapping[str, JobRecord]:
        return {one.name: one for one in self.history.jobs}

    @cached_property
    def evidence(self) -> Mapping[tuple[str, int], Sequence[RankEvidence]]:
        """By job and attempt."""
        found: dict[tuple[str, int], list[RankEvidence]] = defaultdict(list)
        for one in self.history.evidence:
            found[one.job, one.attempt].append(one)
        return found

    @cached_property
    def killed_ranks(self) -> frozenset[tuple[str, int]]:
        return frozenset(
            (one.job, one.attempt)
            for one in self.history.faults
            if one.kind == "kill rank"
        )

    def faults(self, begin: float, end: float, nodes: Sequence[str]) -> Iterator[Fault]:
        """Faults of these nodes or of the head that overlap with the interval."""
        for one in self.history.faults:
            if (
                one.target in (*nodes, "head")
                and one.begun <= end
                and one.ended >= begin
            ):
                yield one


Rule = Callable[[Book], Iterator[Violation]]


def violations(history: History) -> list[Violation]:
    book = Book(history)
    return [wrong for rule in RULES for wrong in rule(book)]


def allowed(history: History) -> Mapping[str, int]:
    """How often it came to what is allowed under a fault (decision 0132)."""
    book = Book(history)
    overlaps = [one for one in _overlaps(book) if _may_overlap(book, one)]
    lost = [
        (job, attempt.number)
        for job, plan in book.plans.items()
        for attempt in book.jobs[job].attempts
        if plan.has_evidence
        and _is_lost_end(plan, attempt, book.evidence.get((job, attempt.number), ()))
    ]
    return {"overlaps": len(overlaps), "lost ends": len(lost)}


def _lost(book: Book) -> Iterator[Violation]:
    """What is acknowledged is there, and once."""
    for ack in book.history.acknowledged:
        if ack.job not in book.jobs:
            yield Violation(
                rule="lost", job=ack.job, text=f"{ack.plan} was acknowledged"
            )
        elif book.jobs[ack.job].name != ack.plan:
            name = book.jobs[ack.job].name
            yield Violation(
                rule="lost", job=ack.job, text=f"{ack.plan} has become {name}"
            )
    ids = defaultdict(list)
    for job in book.history.jobs:
        ids[job.name].append(job.job)
    for name, some in ids.items():
        if len(some) > 1:
            yield Violation(
                rule="submitted twice", job=some[0], text=f"{name} is also {some[1:]}"
            )


def _ends_once(book: Book) -> Iterator[Violation]:
    """Every job is over, its end is recorded once, and it never changed."""
    for job in book.history.jobs:
        if job.state not in FINAL:
            text = f"it is {job.state} long after the last fault: {job.reason}"
            yield Violation(rule="not over", job=job.job, text=text)
        elif job.ends != (job.state,):
            text = (
                f"it is {job.state}, its events say {', '.join(job.ends) or 'nothing'}"
            )
            yield Violation(rule="end recorded once", job=job.job, text=text)
    for seen in book.history.sightings:
        record = book.jobs.get(seen.job)
        if seen.state not in FINAL or record is None:
            continue
        first = (seen.state, seen.exit_code, seen.attempt, seen.ended_at)
        last = (record.state, record.exit_code, record.attempt, record.ended_at)
        if first != last:
            text = f"it was {first}, and is {last}"
            yield Violation(rule="end changed", job=seen.job, text=text)


def _true_ends(book: Book) -> Iterator[Violation]:
    """States and exit codes are those of the ranks."""
    for id, plan in book.plans.items():
        job = book.jobs[id]
        text = ""
        if job.state == "DONE":
            text = _wrongly_done(book, job, plan)
        elif job.state == "FAILED":
            text = _wrongly_failed(book, job, plan)
        elif job.state == "CANCELLED":
            text = _wrongly_cancelled(book, job, plan)
        if text:
            yield Violation(rule="true end", job=id, text=f"{plan.name}: {text}")


def _wrongly_done(book: Book, job: JobRecord, plan: Planned) -> str:
    if plan.code or plan.limit_seconds is not None:
        return f"it is DONE, and ends with code {plan.code} or by its limit"
    if not plan.has_evidence or plan.kind == "batch":
        return ""
    ends = [one.end for one in book.evidence.get((job.job, job.attempt), ())]
    if sorted(ends, key=str) != [0] * plan.nodes:
        return f"it is DONE, and the ranks of attempt {job.attempt} say {ends}"
    return ""


def _wrongly_failed(book: Book, job: JobRecord, plan: Planned) -> str:
    last = next((one for one in job.attempts if one.number == job.attempt), None)
    if last is None:
        return f"it is FAILED and has no attempt: {job.reason}"
    if last.cause == "infra":
        return f"it is FAILED by a fault of the cluster: {job.reason}"
    if last.cause == "request":
        return (
            "" if plan.limit_seconds is not None else f"it has no limit: {job.reason}"
        )
    if (job.job, job.attempt) in book.killed_ranks and job.exit_code:
        return ""
    if not job.exit_code or job.exit_code != plan.code:
        return f"it is FAILED with {job.exit_code}, not {plan.code}: {last.evidence}"
    return ""


def _wrongly_cancelled(book: Book, job: JobRecord, plan: Planned) -> str:
    if any(one.job == job.job for one in book.history.cancelled):
        return ""
    parent = book.by_name.get(plan.after or "")
    if parent is None or parent.state == "DONE":
        return f"it is CANCELLED, which nobody asked for: {job.reason}"
    return ""


def _attempts_charged(book: Book) -> Iterator[Violation]:
    """An attempt that is charged to its user ended by a code of its own ranks; and one
    whose ranks all ended by themselves is not taken for lost, unless a fault has hit
    what records ends."""
    for id, plan in book.plans.items():
        if not plan.has_evidence or plan.kind == "batch":
            continue
        for attempt in book.jobs[id].attempts:
            ranks = book.evidence.get((id, attempt.number), ())
            if text := _wrongly_charged(book, id, plan, attempt, ranks):
                yield Violation(
                    rule="charge", job=id, text=f"attempt {attempt.number}: {text}"
                )


def _wrongly_charged(
    book: Book,
    id: str,
    plan: Planned,
    attempt: AttemptRecord,
    ranks: Sequence[RankEvidence],
) -> str:
    ends = [one.end for one in ranks]
    said = f"code {attempt.exit_code}, cause {attempt.cause} ({attempt.evidence})"
    if attempt.cause == "user":
        if (id, attempt.number) in book.killed_ranks or attempt.exit_code in ends:
            return ""
        return f"{said}; its ranks say {ends}"
    if _is_lost_end(plan, attempt, ranks) and not _may_lose_end(book, attempt, ranks):
        return f"{said}; its ranks had ended by themselves: {ends}"
    return ""


def _is_lost_end(
    plan: Planned, attempt: AttemptRecord, ranks: Sequence[RankEvidence]
) -> bool:
    """Whether all of its ranks exited by themselves, and it was taken for lost."""
    ends = [one.end for one in ranks]
    return attempt.cause == "infra" and len(ends) == plan.nodes and None not in ends


def _may_lose_end(
    book: Book, attempt: AttemptRecord, ranks: Sequence[RankEvidence]
) -> bool:
    """Whether a fault has hit what records its end: its shim, its node, or its disk."""
    last = max(one.last for one in ranks)
    return any(
        one.kind.startswith(NODE_ENDS)
        and (
            not one.kind.endswith("shim")
            or (one.job, one.attempt) == (ranks[0].job, attempt.number)
        )
        for one in book.faults(last - 1.0, last + AFTER_FAULT_SECONDS, attempt.nodes)
    )


def _one_attempt(book: Book) -> Iterator[Violation]:
    """No rank of an attempt runs once a rank of a later one has begun, and none begins
    twice.

    Except (architecture, I2, `disconnect: replace`): a job with saves goes on elsewhere
    once its node is silent. What is left of the old attempt is fenced, and ended when
    the node is back.
    """
    for (id, number), ranks in book.evidence.items():
        names = [(one.rank, one.node) for one in ranks]
        if len(set(names)) != len(names):
            yield Violation(
                rule="rank twice", job=id, text=f"attempt {number}: {sorted(names)}"
            )
    for over in _overlaps(book):
        if not _may_overlap(book, over):
            text = f"attempt {over.rank.attempt} ran on {over.rank.node} for "
            text += f"{over.last - over.since:.1f} s after the next had begun"
            yield Violation(rule="two attempts at once", job=over.rank.job, text=text)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Overlap:
    """A rank that ran until `last`, though a later attempt of its job had begun at
    `since`."""

    rank: RankEvidence
    since: float
    last: float


def _overlaps(book: Book) -> Iterator[_Overlap]:
    begun = {
        key: min(one.begun for one in ranks) for key, ranks in book.evidence.items()
    }
    for rank in book.history.evidence:
        later = [
            at
            for (job, number), at in begun.items()
            if job == rank.job and number > rank.attempt
        ]
        if later and rank.last > min(later):
            yield _Overlap(rank=rank, since=min(later), last=rank.last)


def _may_overlap(book: Book, over: _Overlap) -> bool:
    plan = book.plans.get(over.rank.job)
    if plan is None or not plan.saves:
        return False
    near = book.faults(over.since - AFTER_FAULT_SECONDS, over.since, [over.rank.node])
    away = [one.ended for one in near if one.kind.startswith(AWAY)]
    return bool(away) and over.last <= max(away) + AFTER_FAULT_SECONDS


def _own_gpus(book: Book) -> Iterator[Violation]:
    """A GPU is of one attempt at a time."""
    holders = defaultdict(list)
    for one in book.history.evidence:
        for gpu in one.gpus:
            holders[one.node, gpu].append(one)
    for (node, gpu), some in holders.items():
        for first, second in pairwise(sorted(some, key=lambda one: one.begun)):
            same = (first.job, first.attempt) == (second.job, second.attempt)
            if second.begun < first.last and not same:
                text = f"GPU {gpu} of {node} was also given to {second.job}.{second.attempt} for "
                text += f"{min(first.last, second.last) - second.begun:.1f} s"
                yield Violation(rule="GPU given twice", job=first.job, text=text)


def _limits(book: Book) -> Iterator[Violation]:
    """No attempt runs past its limit and its grace, but for as long as what ends it was
    away."""
    for (id, number), ranks in book.evidence.items():
        plan = book.plans.get(id)
        if plan is None or plan.limit_seconds is None:
            continue
        begin, end = min(one.begun for one in ranks), max(one.last for one in ranks)
        nodes = [one.node for one in ranks]
        away = sum(
            min(end, one.ended + AFTER_FAULT_SECONDS) - max(begin, one.begun)
            for one in book.faults(begin, end, nodes)
        )
        allowed = (
            plan.limit_seconds
            + plan.grace_seconds
            + LIMIT_SLACK_SECONDS
            + max(0.0, away)
        )
        if end - begin > allowed:
            text = f"attempt {number} ran for {end - begin:.1f} s, limit {plan.limit_seconds:g} s"
            yield Violation(rule="time limit", job=id, text=text)


def _saves(book: Book) -> Iterator[Violation]:
    """An attempt begins from the newest save that was committed before it, never
    further back."""
    for wrong in book.history.wrong:
        yield Violation(rule="saves", job="", text=wrong)
    for id, plan in book.plans.items():
        if not plan.saves:
            continue
        job = book.jobs[id]
        for attempt in job.attempts:
            for rank in book.evidence.get((id, attempt.number), ()):
                if text := _wrong_resume(book, job, attempt, rank):
                    yield Violation(
                        rule="saves", job=id, text=f"attempt {attempt.number} {text}"
                    )


def _wrong_resume(
    book: Book, job: JobRecord, attempt: AttemptRecord, rank: RankEvidence
) -> str:
    begun = rank.resumed_step
    if begun != (attempt.resume_step or 0):
        return f"began from step {begun}; recorded is {attempt.resume_step}"
    recorded = [step for number, step in job.saves if number < attempt.number]
    told = [
        one.committed_step
        for number in range(1, attempt.number)
        for one in book.evidence.get((job.job, number), ())
    ]
    newest = max([0, *recorded, *told])
    if begun < newest:
        return f"began from step {begun}, and step {newest} was committed before"
    if begun and begun not in recorded:
        return f"began from step {begun}, which is no recorded save"
    return ""


def _after(book: Book) -> Iterator[Violation]:
    """What waits for a job begins once that one is done."""
    for id, plan in book.plans.items():
        parent = book.by_name.get(plan.after or "")
        if parent is None or not book.jobs[id].attempts:
            continue
        begun = min(one.placed_at for one in book.jobs[id].attempts)
        if parent.state != "DONE" or begun < (parent.ended_at or 0.0) - 0.01:
            text = (
                f"it was placed at {begun:.2f}; {parent.job} is {parent.state} since "
            )
            text += f"{parent.ended_at}"
            yield Violation(rule="after", job=id, text=text)


def _cancels(book: Book) -> Iterator[Violation]:
    """An acknowledged cancel wins over every later start and every later failure."""
    for one in book.history.cancelled:
        job = book.jobs.get(one.job)
        if job is None:
            continue
        late = [n.number for n in job.attempts if n.placed_at > one.at]
        if late:
            text = f"attempts {late} were placed after its cancel was acknowledged"
            yield Violation(rule="cancel", job=one.job, text=text)
        if job.state == "FAILED" and (job.ended_at or 0.0) > one.at:
            text = (
                f"it is FAILED {(job.ended_at or 0.0) - one.at:.1f} s after its cancel"
            )
            yield Violation(rule="cancel", job=one.job, text=text)


def _stores(book: Book) -> Iterator[Violation]:
    """The store is sound, and so is every backup, with all that was acknowledged before
    it."""
    if book.history.integrity != "ok":
        yield Violation(rule="store", job="", text=book.history.integrity)
    for backup in book.history.backups:
        if backup.integrity != "ok":
            yield Violation(rule="backup", job="", text=backup.integrity)
            continue
        for ack in book.history.acknowledged:
            if ack.at < backup.begun and ack.job not in backup.jobs:
                text = (
                    f"{ack.plan} was acknowledged before the backup, and is not in it"
                )
                yield Violation(rule="backup", job=ack.job, text=text)


def _leftovers(book: Book) -> Iterator[Violation]:
    for left in book.history.left_processes:
        yield Violation(rule="left after down", job="", text=f"process {left}")
    for left in book.history.left_mounts:
        yield Violation(rule="left after down", job="", text=f"mount {left}")


def _head_answers(book: Book) -> Iterator[Violation]:
    """A head that nothing keeps from it answers."""
    on_head = [one for one in book.history.faults if one.target == "head"]
    for first, second in pairwise(book.history.answers):
        near = [one for one in on_head if one.begun <= second and one.ended >= first]
        away = sum(
            min(second, one.ended + AFTER_FAULT_SECONDS) - one.begun for one in near
        )
        if second - first > SILENT_SECONDS + max(0.0, away):
            text = f"it did not answer for {second - first:.1f} s from {first:.1f} on"
            yield Violation(rule="head away", job="", text=text)


def _commands(book: Book) -> Iterator[Violation]:
    """Commands of an operator work, unless another fault hits meanwhile. The full disk
    of a node is none for what the head does."""
    for one in book.history.failed_commands:
        if not any(_may_fail(one, fault) for fault in book.history.faults):
            text = (
                f"corral {one.words}: exit code {one.code}: {one.text.strip()[-400:]}"
            )
            yield Violation(rule="command", job="", text=text)


def _may_fail(command: Command, fault: Fault) -> bool:
    if fault.begun > command.ended or fault.ended < command.begun - AFTER_FAULT_SECONDS:
        return False
    is_own = fault.kind in OF_COMMANDS and fault.begun <= command.begun
    return not is_own and (fault.target == "head" or "the head" not in command.text)


RULES: Final[Sequence[Rule]] = (
    _lost,
    _ends_once,
    _true_ends,
    _attempts_charged,
    _one_attempt,
    _own_gpus,
    _limits,
    _saves,
    _after,
    _cancels,
    _stores,
    _leftovers,
    _head_answers,
    _commands,
)
