"""Checks before a queue is changed, and before a job is accepted into one."""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from corral.domain.access_list import may_submit, who_text
from corral.domain.errors import Conflict, Forbidden, NotFound, Refusal, SpecInvalid
from corral.domain.ids import QueueName, UserName
from corral.domain.job import DEFAULT_QUEUE, PRIORITIES, JobSpec
from corral.domain.queue import ANY_TYPE, Queue
from corral.domain.queue_faults import QueueFault
from corral.domain.queue_tree import NoTree, QueueTree
from corral.domain.requests import SetQueues
from corral.domain.time_point import moment_text
from corral.domain.units import (
    MILLIS_PER_GPU,
    duration_text,
    gpus_text,
    written_duration,
)
from corral.domain.users import Role
from corral.domain.world import World
from corral.reconcile.placement import whole_gpus
from corral.reconcile.queue_tree import tree_of
from corral.wire.queue_corrections import file_text, option_text

MOST_NAMED: Final = 3  # of those who may be asked


class QuotaExceeded(Refusal):
    """Refusal of a job that asks for more GPUs than the queue (or its user there) may
    ever use at once."""

    code = "quota_exceeded"


class QueueRule(Refusal):
    """Refusal of a job that the rules of the queue exclude: it may run too long, or its
    priority is out of range."""

    code = "queue_rule"


def warnings_of(world: World, tree: QueueTree) -> list[str]:
    """Return warnings about an accepted tree whose queues own more GPUs than the
    cluster has. It is accepted all the same, because nodes may still join."""
    gpu_counts = Counter(
        gpu.type for node in world.nodes.values() for gpu in node.inventory.gpus
    )
    owned: Counter[str] = Counter()
    for queue in tree.queues:
        if queue.parent is None:
            owned.update(dict(queue.nominal))
    overcommitted = [
        f"the queues own {gpus_text(millis)} {kind} GPUs; the cluster has {gpu_counts[kind]}"
        for kind, millis in sorted(owned.items())
        if kind != ANY_TYPE and millis > gpu_counts[kind] * MILLIS_PER_GPU
    ]
    if not overcommitted and owned.total() > gpu_counts.total() * MILLIS_PER_GPU:
        all_own = gpus_text(owned.total())
        overcommitted.append(
            f"the queues own {all_own} GPUs together; the cluster has {gpu_counts.total()}"
        )
    return [
        f"{gpu_type}: the queues cannot all use their own GPUs at the same time"
        for gpu_type in overcommitted
    ]


def check_queues(world: World, asked: SetQueues, at: float) -> QueueTree:
    """Check a request for queue changes that is made at the moment `at` (wall clock).
    Return the tree of queues after it.

    Raises: SpecInvalid, NotFound, Conflict if a queue would be removed that has jobs or
    queues below it.
    """
    for name in asked.removed:
        _check_removed(world.queues, name)
    try:
        tree = tree_of(world.queues, asked, 0.0)
    except NoTree as error:
        raise SpecInvalid(
            str(error), hint=_fault_hint(error.fault, whole=asked.whole)
        ) from None
    for queue in tree.queues:
        _check_budget(queue, world.queues.queue(queue.name), at)
    counts = Counter(job.spec.queue for job in world.jobs.values())
    for name in counts.keys() & world.queues.by_name.keys() - tree.by_name.keys():
        jobs = f"{counts[name]} unfinished job{'s' * (counts[name] > 1)}"
        raise Conflict(
            f"queue {name} cannot be removed: it has {jobs}",
            hint="wait until its jobs have ended, or stop them; run: corral queue show "
            f"{name}",
        )
    return tree


def _fault_hint(fault: QueueFault, *, whole: bool) -> str:
    """Return a hint how to correct a fault: with `whole`, what to write in a file of
    all queues; else which options to set for this queue."""
    if fault.correction is None:
        return fault.advice
    if whole:
        return f"write: {file_text(fault.correction)}"
    return f"run: corral queue set {fault.queue} {option_text(fault.correction)}"


def _check_removed(tree: QueueTree, name: QueueName) -> None:
    if name not in tree.by_name:
        raise NotFound("queue", name[:100], list(tree.by_name), see="corral queue ls")
    if name == DEFAULT_QUEUE:
        raise Conflict(
            f"queue {name} cannot be removed: jobs that name no queue belong to it",
            hint=f"to close it to users: corral queue set {name} --allow @operator",
        )
    below = [queue.name for queue in tree.queues if queue.parent == name]
    if below:
        children_text = (
            f"queue {below[0]} is"
            if len(below) == 1
            else f"queues {', '.join(below[:9])} are"
        )
        raise Conflict(
            f"queue {name} cannot be removed: {children_text} below it",
            hint=f"move the queue below: corral queue set {below[0]} --parent none; or "
            f"remove it first: corral queue rm {below[0]}",
        )


def _check_budget(queue: Queue, before: Queue, at: float) -> None:
    """Refuse a new budget whose end is already over at the time `at`. A budget whose
    end has passed may be written again with the same end. `before` is the queue before
    the change.

    Raises: SpecInvalid.
    """
    budget, previous_budget = queue.budget, before.budget
    if budget is None or budget.until is None or not budget.is_over(at):
        return
    if previous_budget is None or previous_budget.until != budget.until:
        raise SpecInvalid(
            f"queue {queue.name}: budget: until is {moment_text(budget.until)}, which is "
            "in the past",
            hint="write an until in the future, or a budget that is renewed: period: 30d",
        )


def longest_seconds(tree: QueueTree, name: QueueName) -> float | None:
    """Return the longest time in seconds that a job of the queue may run: the smallest
    limit of the queue and the queues above it. None if there is no limit."""
    limits = [queue.longest_seconds for queue in tree.path(name)]
    return min((limit for limit in limits if limit is not None), default=None)


def check_allowed(
    tree: QueueTree,
    name: QueueName,
    user: UserName,
    role: Role,
    operators: Sequence[UserName],
) -> None:
    """Check that the user may submit to the queue. `operators` are the users who could
    allow it; the error names some of them.

    Raises: Forbidden if not. The error names who may submit to the queue.
    """
    allow = tree.allowed(name)
    if allow is None or may_submit(allow, user, role):
        return
    setter = next(
        queue for queue in reversed(tree.path(name)) if queue.allow is not None
    )
    origin_text = (
        "" if setter.name == name else f" (set for queue {setter.name} above it)"
    )
    ask = ", ".join(operators[:MOST_NAMED]) or "an operator"
    raise Forbidden(
        f"{user} may not submit to queue {name}: it allows only {who_text(allow)}"
        f"{origin_text}",
        hint=f"choose another queue: corral queue ls; or ask {ask} to run: "
        f"corral queue set {name} --allow {','.join([*allow, user])}",
    )


def check_queue(world: World, spec: JobSpec) -> None:
    """Check the job against its queue and the queues above it.

    Raises: NotFound for the queue, QueueRule, QuotaExceeded.
    """
    tree = world.queues
    if spec.queue not in tree.by_name:
        make = f"corral queue ls; or create it: corral queue set {spec.queue}"
        raise NotFound("queue", spec.queue, list(tree.by_name), see=make)
    limit = longest_seconds(tree, spec.queue)
    asked_seconds = spec.max_duration_seconds
    if limit is not None and asked_seconds is not None and asked_seconds > limit:
        raise QueueRule(
            f"{spec.name}: max_duration is {duration_text(asked_seconds)}; queue "
            f"{spec.queue} allows at most {duration_text(limit)}",
            hint=f"write: max_duration: {written_duration(limit)}, "
            "or choose another queue: corral queue ls",
        )
    whole_millis = whole_gpus(world.nodes.values(), spec) * MILLIS_PER_GPU
    for queue in tree.path(spec.queue):
        _check_priority(queue, spec)
        _check_size(queue, spec, whole_millis)


def _check_priority(queue: Queue, spec: JobSpec) -> None:
    lowest_priority, highest_priority = queue.lowest_priority, queue.highest_priority
    if (lowest_priority is not None and spec.priority < lowest_priority) or (
        highest_priority is not None and spec.priority > highest_priority
    ):
        near = (
            max(lowest_priority, spec.priority)
            if lowest_priority is not None
            else spec.priority
        )
        near = min(highest_priority, near) if highest_priority is not None else near
        raise QueueRule(
            f"{spec.name} asks for priority {priority_text(spec.priority)}; queue "
            f"{queue.name} allows {priorities_text(queue)}",
            hint=f"write: priority: {priority_text(near)}",
        )


def priority_text(priority: int) -> str:
    names = {number: name for name, number in PRIORITIES.items()}
    return names.get(priority, str(priority))


def priorities_text(queue: Queue) -> str:
    """Return a text of the priorities that a queue accepts: "low to normal", "up to
    normal"; "" if it accepts all."""
    lowest_priority, highest_priority = queue.lowest_priority, queue.highest_priority
    if lowest_priority is not None and highest_priority is not None:
        return f"{priority_text(lowest_priority)} to {priority_text(highest_priority)}"
    if lowest_priority is not None:
        return f"{priority_text(lowest_priority)} and above"
    return (
        f"up to {priority_text(highest_priority)}"
        if highest_priority is not None
        else ""
    )


def ordinary_priority(tree: QueueTree, name: QueueName) -> int:
    """Return the highest priority that ordinary users may ask for in the queue: the
    lowest upper bound set by the queue and the queues above it, or high if none is set.
    Operators are limited only by the bounds of the queues."""
    bounds = [queue.highest_priority for queue in tree.path(name)]
    return min(
        (bound for bound in bounds if bound is not None), default=PRIORITIES["high"]
    )


def check_priorities(tree: QueueTree, specs: Sequence[JobSpec], user: UserName) -> None:
    """Refuse a user's priorities above the ordinary range. Raises: Forbidden."""
    for spec in specs:
        priority_limit = ordinary_priority(tree, spec.queue)
        if spec.priority > priority_limit and spec.priority > PRIORITIES["high"]:
            raise Forbidden(
                f"{spec.name} asks for priority {spec.priority:,}; in queue {spec.queue} "
                f"users may ask for at most {priority_text(priority_limit)} "
                f"({priority_limit:,}), only operators for more",
                hint=f"write: priority: {priority_text(priority_limit)}; or submit, and "
                f"then ask an operator to run: corral set {spec.name} --priority "
                f"{spec.priority}",
            )


def _check_size(queue: Queue, spec: JobSpec, whole_millis: int) -> None:
    """Refuse a job that needs more GPUs than its queue or its user may ever have at
    once. It would wait forever.

    `whole_millis` is the least that each exclusive node of the job counts, in
    thousandths of a GPU.
    """
    least_millis = min(
        max(shape.gpu_millis, shape.nodes * whole_millis) for shape in spec.shapes
    )
    request_text = (
        f"{spec.name} asks for {gpus_text(least_millis)} "
        f"GPU{'s' * (least_millis > MILLIS_PER_GPU)}"
    )
    request_text += (
        " (all GPUs of exclusive nodes count)" if spec.place.exclusive else ""
    )
    if queue.borrow_limit_millis is not None:
        own_millis = (
            0 if spec.preemptible else queue.nominal_millis
        )  # what is preemptible is borrowed
        limit_millis = own_millis + queue.borrow_limit_millis
        if least_millis > limit_millis:
            raise QuotaExceeded(
                f"{request_text}; queue {queue.name} owns {gpus_text(own_millis)} and may "
                f"borrow at most {gpus_text(queue.borrow_limit_millis)}",
                hint=_less_hint(queue, limit_millis),
            )
    if (
        queue.most_per_user_millis is not None
        and least_millis > queue.most_per_user_millis
    ):
        limit_millis = queue.most_per_user_millis
        raise QuotaExceeded(
            f"{request_text}; in queue {queue.name} one user may use at most "
            f"{gpus_text(limit_millis)}",
            hint=_less_hint(queue, limit_millis),
        )


def _less_hint(queue: Queue, most_millis: int) -> str:
    if not most_millis:
        return "submit the job to another queue; run: corral queue ls"
    return (
        f"ask for {gpus_text(most_millis)} or fewer GPUs, or run: corral queue show "
        f"{queue.name}"
    )
