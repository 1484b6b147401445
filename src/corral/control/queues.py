"""What is looked at before a queue is changed, and before a job is taken into one."""

from collections import Counter

from corral.domain.errors import Conflict, NotFound, Refusal, SpecInvalid
from corral.domain.ids import QueueName
from corral.domain.job import PRIORITIES, JobSpec
from corral.domain.queue import ANY_TYPE, Queue, QueueTree
from corral.domain.units import MILLIS_PER_GPU, duration_text, gpus_text
from corral.domain.wishes import SetQueues
from corral.domain.world import World
from corral.reconcile.place import whole_gpus
from corral.reconcile.queues import tree_of


class QuotaExceeded(Refusal):
    """More GPUs than the queue may ever use at once."""

    code = "quota_exceeded"


class QueueRule(Refusal):
    """The queue takes no job like this: one that is too long, or of such a priority."""

    code = "queue_rule"


def warnings_of(world: World, tree: QueueTree) -> list[str]:
    """What a tree comes to that is taken all the same, as nodes may yet come: more owned than is
    there."""
    there = Counter(gpu.type for node in world.nodes.values() for gpu in node.inventory.gpus)
    owned: Counter[str] = Counter()
    for queue in tree.queues:
        if queue.parent is None:
            owned.update(dict(queue.nominal))
    found = [
        f"the queues own {gpus_text(millis)} {kind} GPUs; the cluster has {there[kind]}"
        for kind, millis in sorted(owned.items())
        if kind != ANY_TYPE and millis > there[kind] * MILLIS_PER_GPU
    ]
    if not found and owned.total() > there.total() * MILLIS_PER_GPU:
        all_own = gpus_text(owned.total())
        found.append(f"the queues own {all_own} GPUs together; the cluster has {there.total()}")
    return [f"{one}: not all of them can have what is theirs at once" for one in found]


def check_queues(world: World, asked: SetQueues) -> QueueTree:
    """The tree after the wish. Raises: SpecInvalid, Conflict when a queue with jobs would go."""
    try:
        tree = tree_of(world.queues, asked, 0.0)
    except ValueError as error:
        raise SpecInvalid(str(error), hint="run: corral queue ls") from None
    counts = Counter(job.spec.queue for job in world.jobs.values())
    for name in counts.keys() & world.queues.by_name.keys() - tree.by_name.keys():
        jobs = f"{counts[name]} unfinished job{'s' * (counts[name] > 1)}"
        raise Conflict(
            f"queue {name} would be taken away, and it has {jobs}",
            hint=f"keep it until they are over, or stop them; run: corral queue show {name}",
        )
    return tree


def longest_seconds(tree: QueueTree, name: QueueName) -> float | None:
    """The longest that a job of the queue may run: the least of all above it; None: no limit."""
    limits = [queue.longest_seconds for queue in tree.path(name)]
    return min((one for one in limits if one is not None), default=None)


def check_queue(world: World, spec: JobSpec) -> None:
    """Raises: NotFound for the queue, QueueRule, QuotaExceeded."""
    tree = world.queues
    if spec.queue not in tree.by_name:
        raise NotFound("queue", spec.queue, list(tree.by_name), see="corral queue ls")
    limit = longest_seconds(tree, spec.queue)
    asked = spec.max_duration_seconds
    if limit is not None and asked is not None and asked > limit:
        raise QueueRule(
            f"{spec.name} may run {duration_text(asked)}; queue {spec.queue} lets a job run "
            f"{duration_text(limit)}",
            hint=f"write: max_duration: {limit:.0f}s, or choose another: corral queue ls",
        )
    whole = whole_gpus(world.nodes.values(), spec) * MILLIS_PER_GPU
    for queue in tree.path(spec.queue):
        _check_priority(queue, spec)
        _check_size(queue, spec, whole)


def _check_priority(queue: Queue, spec: JobSpec) -> None:
    low, high = queue.lowest_priority, queue.highest_priority
    if (low is not None and spec.priority < low) or (high is not None and spec.priority > high):
        near = max(low, spec.priority) if low is not None else spec.priority
        near = min(high, near) if high is not None else near
        raise QueueRule(
            f"{spec.name} asks for priority {priority_text(spec.priority)}; queue {queue.name} "
            f"takes {priorities_text(queue)}",
            hint=f"write: priority: {priority_text(near)}",
        )


def priority_text(priority: int) -> str:
    names = {number: name for name, number in PRIORITIES.items()}
    return names.get(priority, str(priority))


def priorities_text(queue: Queue) -> str:
    """The priorities that a queue takes: "low to normal", "up to normal"; "" for all."""
    low, high = queue.lowest_priority, queue.highest_priority
    if low is not None and high is not None:
        return f"{priority_text(low)} to {priority_text(high)}"
    if low is not None:
        return f"{priority_text(low)} and above"
    return f"up to {priority_text(high)}" if high is not None else ""


def _check_size(queue: Queue, spec: JobSpec, whole_millis: int) -> None:
    """No wait cures a job that is larger than all that its queue or its user may ever have.

    `whole_millis`: what each node costs at the least that is to be exclusively its.
    """
    least = min(max(shape.gpu_millis, shape.nodes * whole_millis) for shape in spec.shapes)
    asks = f"{spec.name} asks for {gpus_text(least)} GPUs"
    asks += ", as exclusive nodes count whole" if spec.place.exclusive else ""
    if queue.borrow_limit_millis is not None:
        own = 0 if spec.preemptible else queue.nominal_millis  # what is preemptible is borrowed
        most = own + queue.borrow_limit_millis
        if least > most:
            raise QuotaExceeded(
                f"{asks}; queue {queue.name} has {gpus_text(own)} and may borrow "
                f"{gpus_text(queue.borrow_limit_millis)}",
                hint=f"ask for {gpus_text(most)} or fewer, or run: corral queue show {queue.name}",
            )
    if queue.most_per_user_millis is not None and least > queue.most_per_user_millis:
        most = queue.most_per_user_millis
        raise QuotaExceeded(
            f"{asks}; in queue {queue.name} one user may have {gpus_text(most)}",
            hint=f"ask for {gpus_text(most)} or fewer, or run: corral queue show {queue.name}",
        )
