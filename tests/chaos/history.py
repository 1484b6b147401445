"""Shapes of what a chaos run has recorded: plans, answers, faults, evidence, final
records.

Times are seconds since 1970 by this machine's clock. `history.json` is a History as
JSON.
"""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A job as it was generated, with the end that it has when nothing disturbs it.

    Args:
        code: Exit code of its last attempt.
        fails_before: Attempts below this number exit with code 1.
        has_evidence: Whether its ranks write evidence files.
        after: Name of the job that must be done first.
        cancel_after: Seconds from its acknowledgement to its cancel.
    """

    name: str
    kind: str
    code: int = 0
    nodes: int = 1
    gpus: int = 0
    limit_seconds: float | None = None
    grace_seconds: float = 2.0
    saves: bool = False
    user_retries: int = 0
    fails_before: int = 0
    has_evidence: bool = True
    after: str | None = None
    cancel_after: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledged:
    """A submission that the head has answered. `plan` is the name of its plan."""

    plan: str
    job: str
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancelled:
    """A cancel that the head has acknowledged, with the state that it answered."""

    job: str
    at: float
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """An injected fault. `target`: the node, or "head"; `job` and `attempt` of a shim
    or rank. That of a killed head ends when it is started again."""

    kind: str
    target: str
    begun: float
    ended: float
    job: str = ""
    attempt: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """The state of a job in a listing, recorded when it differs from the one before."""

    at: float
    job: str
    state: str
    exit_code: int | None
    attempt: int
    ended_at: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RankEvidence:
    """The evidence file of one rank. `end`: exit code that it announced, None where it
    was ended.

    `beats` are moments at which it ran, at least two a second; the first one is its
    begin.
    """

    job: str
    attempt: int
    node: str
    rank: int
    gpus: tuple[int, ...]
    beats: tuple[float, ...]
    resumed_step: int = 0
    committed_step: int = 0
    last_step: int = 0
    was_asked_to_stop: bool = False
    end: int | None = None

    @property
    def begun(self) -> float:
        return self.beats[0]

    @property
    def last(self) -> float:
        return self.beats[-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRecord:
    number: int
    nodes: tuple[str, ...]
    placed_at: float
    ended_at: float | None
    cause: str
    evidence: str
    exit_code: int | None
    resume_step: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord:
    """A job in the head's final records. `ends`: its events of a final state, oldest
    first."""

    job: str
    name: str
    state: str
    reason: str
    exit_code: int | None
    attempt: int
    ended_at: float | None
    attempts: tuple[AttemptRecord, ...] = ()
    saves: tuple[tuple[int, int], ...] = ()  # (attempt, step)
    ends: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command of an operator that did not end with 0, and what it printed."""

    words: str
    begun: float
    ended: float
    code: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Backup:
    """A backup made midway, and what its restore has shown. `integrity` is "ok" or the
    error."""

    begun: float
    jobs: tuple[str, ...]
    integrity: str


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    seed: int
    seconds: float
    plans: tuple[Planned, ...] = ()
    acknowledged: tuple[Acknowledged, ...] = ()
    cancelled: tuple[Cancelled, ...] = ()
    faults: tuple[Fault, ...] = ()
    sightings: tuple[Sighting, ...] = ()
    answers: tuple[float, ...] = ()  # when the watcher had a listing
    evidence: tuple[RankEvidence, ...] = ()
    jobs: tuple[JobRecord, ...] = ()
    backups: tuple[Backup, ...] = ()
    integrity: str = "ok"
    left_processes: tuple[str, ...] = ()
    left_mounts: tuple[str, ...] = ()
    failed_commands: tuple[Command, ...] = ()
    wrong: tuple[str, ...] = ()  # what ranks themselves found wrong
    notes: tuple[str, ...] = ()
    counts: dict[str, int] = field(default_factory=dict)
