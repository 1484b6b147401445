"""Check of queue limits. It returns the forms of a gang that its queue may hold now, or
the reason, with numbers, why it may hold no form."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from corral.domain.attempt import Seat
from corral.domain.ids import NodeId, QueueName, UserName
from corral.domain.queue import Queue
from corral.domain.queue_tree import QueueTree
from corral.domain.reason_code import ReasonCode
from corral.domain.resources import Shape
from corral.domain.units import MILLIS_PER_CPU, MILLIS_PER_GPU, counted_gpus, gpus_text
from corral.domain.usage import BYTES_PER_GIB
from corral.schedule.quota.balances import LimitRefusal, QuotaHolding, Standing
from corral.schedule.quota.fair_share import ResourceAmounts
from corral.schedule.waiting import Reason, Waiting

Alike = tuple[QueueName, UserName, tuple[Shape, ...], bool, int]


class QueueLimits:
    """Answers during one scheduling pass which shapes a gang's queue may hold. A
    refused request stays refused until `given_back` is called."""

    def __init__(self, standing: Standing, kinds: Sequence[str]) -> None:
        self._standing = standing
        self._kinds = kinds
        self._allowed: dict[Alike, tuple[int, tuple[Shape, ...]]] = {}
        self._reasons: dict[Alike, Reason] = {}

    def shapes(self, gang: Waiting) -> tuple[Shape, ...]:
        """Return the shapes that the gang's queue may hold now, the preferred one
        first. Empty: it may hold none, and `reason` returns why."""
        alike = _limit_key(gang)
        version, shapes = self._allowed.get(alike, (-1, gang.shapes))
        if shapes and version != self._standing.version:
            allowed = (
                self._standing.allowed(gang, shape, self._kinds)
                for shape in gang.shapes
            )
            shapes = tuple(shape for forms in allowed for shape in forms)
            self._allowed[alike] = (self._standing.version, shapes)
        return shapes

    def given_back(self) -> None:
        """Forget all refusals, because resources were returned."""
        self._allowed.clear()
        self._reasons.clear()

    def reason(self, gang: Waiting) -> Reason:
        """Return the reason why the gang's queue may hold none of its forms."""
        alike = _limit_key(gang)
        if alike not in self._reasons:
            self._reasons[alike] = self._limit_reason(gang)
        return self._reasons[alike]

    def beside(self, gang: Waiting) -> Reason:
        """Return the reason why a gang must wait if its queue's limit would allow the
        gang now, but not together with the promised starts of other gangs."""
        request_text = (
            "the job asks for "
            f"{counted_gpus(min(shape.gpu_millis for shape in gang.shapes))}"
        )
        return Reason(
            code=ReasonCode.QUEUE_LIMIT,
            sentence=f"{request_text}; together with jobs that are promised a start "
            f"before it would end, that is more than queue {gang.queue} may use",
            suggestions=(f"run: corral queue show {gang.queue}",),
        )

    def _limit_reason(self, gang: Waiting) -> Reason:
        standing = self._standing
        shape = min(gang.shapes, key=lambda one: one.gpu_millis)
        asked_millis = standing.asked_by(gang, shape, self._kinds)
        refused = standing.refusal(
            gang.queue, gang.user, asked_millis, preemptible=gang.preemptible
        )
        refused = refused or LimitRefusal(queue=gang.queue)
        request_text = f"the job asks for {counted_gpus(shape.gpu_millis)}"
        if gang.whole_gpus:
            request_text += (
                ", and exclusive nodes count as "
                f"{counted_gpus(sum(millis for _, millis in asked_millis))}"
            )
        if refused.queue is None:
            return Reason(
                code=ReasonCode.NOTHING_TO_BORROW,
                sentence=f"{request_text}; queue {gang.queue} would have to borrow them, "
                "but no other queue lends idle GPUs now",
                suggestions=(
                    "run: corral queue ls; to give the queue more GPUs of its own: corral "
                    f"queue set {gang.queue} --gpus N",
                ),
            )
        queue = standing.tree.queue(refused.queue)
        see = (f"run: corral queue show {queue.name}",)
        if refused.user is not None:
            held_millis = standing.of_user_millis(queue.name, refused.user)
            return Reason(
                code=ReasonCode.USER_LIMIT,
                sentence=f"{request_text}; {refused.user} uses {gpus_text(held_millis)} "
                f"of the {counted_gpus(queue.most_per_user_millis or 0)} that one user "
                f"may use in queue {queue.name}",
                suggestions=see,
            )
        return Reason(
            code=ReasonCode.QUEUE_LIMIT,
            sentence=f"{request_text}; {self._usage_text(queue)}",
            suggestions=see,
        )

    def _usage_text(self, queue: Queue) -> str:
        held_millis = self._standing.held_millis(queue.name)
        limit = queue.borrow_limit_millis
        if limit is None:
            may = "and the queues above it may borrow no more"
        else:
            may = f"and may borrow {gpus_text(limit) if limit else 'none'}"
        own_text = counted_gpus(queue.nominal_millis)
        return (
            f"queue {queue.name} uses {gpus_text(held_millis)} of its {own_text} {may}"
        )


def _limit_key(gang: Waiting) -> Alike:
    return gang.queue, gang.user, gang.shapes, gang.preemptible, gang.whole_gpus


def holding_of(
    queue: QueueName,
    user: UserName,
    seats: Iterable[Seat],
    types: Mapping[NodeId, Sequence[str]],
    *,
    preemptible: bool = False,
) -> QuotaHolding:
    """Return what the seats hold; a seat on an exclusive node holds all GPUs of the
    node, used or not.

    `types`: types of each node's GPUs by index; an unknown GPU has no type.
    """
    millis: Counter[str] = Counter()
    cpus = gib = 0.0
    for seat in seats:
        kinds = types.get(seat.node, ())
        is_whole = seat.exclusive and len(kinds) > 0
        for kind in kinds if is_whole else ():
            millis[kind] += MILLIS_PER_GPU
        for index in () if is_whole else seat.gpus:
            kind = kinds[index] if index < len(kinds) else ""
            millis[kind] += seat.gpu_millis // len(seat.gpus)
        cpus += seat.cpu_millis / MILLIS_PER_CPU
        gib += seat.memory_bytes / BYTES_PER_GIB
    gpus = millis.total() / MILLIS_PER_GPU
    return QuotaHolding(
        queue=queue,
        user=user,
        gpu_millis=tuple(sorted(millis.items())),
        amounts=ResourceAmounts(gpus, cpus, gib),
        preemptible=preemptible,
    )


def unlimited(capacity: ResourceAmounts, queues: Iterable[QueueName]) -> Standing:
    """Return a standing in which queues have no limits, for a pass without quotas."""
    return Standing(QueueTree(), capacity=capacity, others=set(queues))
