"""Description of a waiting job for the scheduler, and the reasons for its waiting."""

from dataclasses import dataclass, field
from functools import cached_property

from corral.domain.ids import JobId, NodeId, QueueName, UserName
from corral.domain.job import DEFAULT_QUEUE
from corral.domain.placement_constraints import PlaceRule
from corral.domain.reason_code import ReasonCode
from corral.domain.resources import Shape


class Alike:
    """A hashable key that is equal for gangs with equal properties. The hash is
    computed only once, because such keys are compared often."""

    __slots__ = ("_hash", "_parts")

    def __init__(self, *parts: object) -> None:
        self._parts = parts
        self._hash = hash(parts)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Alike) or self._hash != other._hash:
            return False
        return self._parts == other._parts


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """A gang in the queue. `order`: its place in the queue (submission, index); the
    smaller comes first.

    `since`: the start of the wait (wall clock). `shared_path` must be the same storage,
    with one mark, on every node of the gang; `mark` is the mark of its existing saves.
    `sharing` stands for all paths that nodes see in the same way as this path. `array`
    and `array_limit` bound how many jobs of an array run at once. `kin`: the name by
    which other jobs request to stay apart from it. Nodes in `avoid` are used last;
    nodes in `likes`, which have its data, are used first. `spreads`: nodes with fewer
    jobs of its `kin` are used first.

    `holds_seconds`: the maximum time for which it holds its seats; None: unknown.
    `whole_gpus`: the GPUs of the smallest sufficient nodes for a gang that wants whole
    nodes; 0 if it does not want them. `served_seconds`: its attained service.
    `restart_seconds`: the time to restore that service. `waited_seconds`: the sum of
    its earlier waits. `stem`, its name without numbers, and `limit_seconds` are set
    only if the order needs them. `stop_seconds`: the time in which it stops.
    """

    job: JobId
    shapes: tuple[Shape, ...]
    priority: int
    order: tuple[int, int]
    since: float = 0.0
    pinned_to: NodeId | None = None
    shared_path: str | None = None
    sharing: str | None = None
    mark: str | None = None
    array: JobId | None = None
    array_limit: int | None = None
    queue: QueueName = DEFAULT_QUEUE
    user: UserName = UserName("")  # noqa: B008
    place: PlaceRule = field(default_factory=PlaceRule)
    kin: str = ""
    avoid: tuple[NodeId, ...] = ()  # the newest last
    likes: frozenset[NodeId] = frozenset()
    spreads: bool = False
    preemptible: bool = False
    holds_seconds: float | None = None
    whole_gpus: int = 0
    served_seconds: float = 0.0
    restart_seconds: float = 0.0
    waited_seconds: float = 0.0
    stem: str = ""
    limit_seconds: float | None = None
    stop_seconds: float = 0.0

    def waited_by(self, now: float) -> float:
        """Return how long the gang has waited up to this time (wall clock), including
        earlier waits, in seconds."""
        return self.waited_seconds + now - self.since

    @property
    def takes_any(self) -> bool:
        """Return whether all nodes are equally good for the gang: it has no saves on a
        marked path, and no nodes to avoid or prefer."""
        return self.mark is None and not (self.avoid or self.likes or self.spreads)

    @cached_property
    def needs(self) -> Alike:
        """Return a key of the gang's requirements: gangs with equal keys fit on the
        same nodes."""
        path = self.shared_path if self.sharing is None else self.sharing
        return Alike(self.shapes, self.pinned_to, path, self.mark, self.place)

    @cached_property
    def likeness(self) -> Alike:
        """Return a key of the gang's requirements and preferences: gangs with equal
        keys would take the same nodes."""
        return Alike(self.needs, self.avoid, self.likes, self.spreads)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """The reason why a job waits: a code (as in Slurm), a sentence, and suggestions of
    changes that would help."""

    code: ReasonCode
    sentence: str
    suggestions: tuple[str, ...] = ()


def full_array(limit: int, running: int, coming: int) -> Reason:
    """Return the reason why a job of an array waits for others of the array: `running`
    of them run, and `coming` start next."""
    sentence = f"the job's array runs {running} jobs now, which is its limit"
    if running < limit:
        sentence = f"the array runs {running} of {limit} jobs, and {coming} start next"
    return Reason(code=ReasonCode.ARRAY_LIMIT, sentence=sentence)


def behind_older(gang: Waiting) -> Reason:
    """Return the reason why a job waits behind an older gang of its queue."""
    sentence = (
        f"queue {gang.queue} starts jobs by age; the older job {gang.job} has no room "
        "yet"
    )
    return Reason(code=ReasonCode.ORDER, sentence=sentence)
