"""Layout of a step: which tasks run on which nodes of the job. The functions are pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from corral.wire.slurm.batch_plan import BatchPlan


class CannotStep(Exception):
    """The step asks for more than the job has; the message is worded like srun's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SrunOptions:
    """Options of an srun command; None or an empty value means that the option was not
    given."""

    nodes: int | None = None
    tasks: int | None = None
    tasks_per_node: int | None = None
    cpus_per_task: int | None = None
    relative: int = 0
    on: tuple[str, ...] = ()
    off: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskLayout:
    """Distribution of a step's tasks over nodes. `nodes` are positions in the job's
    list of nodes; `tasks` has the number of tasks on each of these nodes, in the same
    order."""

    nodes: tuple[int, ...]
    tasks: tuple[int, ...]

    @property
    def total(self) -> int:
        return sum(self.tasks)

    def first_task(self, place: int) -> int:
        """Return the number of the first task on the node at position `place` in the
        step, counted from 0."""
        return sum(self.tasks[:place])


def lay_out(
    asked: SrunOptions, plan: BatchPlan, hosts: Sequence[Sequence[str]]
) -> TaskLayout:
    """Distribute the tasks of a step in blocks over the job's nodes.

    Args:
        hosts: all names of each node, in the order of the job.

    Raises: CannotStep when the job's nodes cannot satisfy the request.
    """
    able = _eligible_nodes(asked, hosts)
    tasks = asked.tasks
    if tasks is None and asked.tasks_per_node is None and plan.tasks_given:
        tasks = plan.tasks
    per_node = asked.tasks_per_node
    if per_node is None and asked.tasks is None and plan.tasks_given:
        per_node = plan.tasks_per_node
    count = asked.nodes or (
        len(asked.on) if asked.on else min(len(able), tasks or len(able))
    )
    if count > len(able):
        raise CannotStep(
            "Unable to create step for job: Requested node configuration is not available"
        )
    if tasks is None:
        tasks = count * (per_node or 1)
    if tasks < count:
        count = tasks
    return TaskLayout(
        nodes=tuple(able[:count]),
        tasks=_task_counts_by_node(tasks, count, asked.tasks_per_node),
    )


def _eligible_nodes(asked: SrunOptions, hosts: Sequence[Sequence[str]]) -> list[int]:
    """Return the positions of the nodes that the step may use. Nodes that the request
    names come first."""
    free_places = [
        node_index
        for node_index, names in enumerate(hosts)
        if node_index >= asked.relative and not set(names) & set(asked.off)
    ]
    requested_nodes: list[int] = []
    for name in asked.on:
        named_places = [
            node_index
            for node_index in free_places
            if name in hosts[node_index] and node_index not in requested_nodes
        ]
        if not named_places:
            raise CannotStep(
                f"Unable to create step for job: node {name} is not in this job"
            )
        requested_nodes.append(named_places[0])
    return requested_nodes + [
        node_index for node_index in free_places if node_index not in requested_nodes
    ]


def _task_counts_by_node(
    tasks: int, nodes: int, per_node: int | None
) -> tuple[int, ...]:
    if per_node is None:
        return tuple(
            tasks // nodes + (node_index < tasks % nodes) for node_index in range(nodes)
        )
    sizes = tuple(
        max(0, min(per_node, tasks - node_index * per_node))
        for node_index in range(nodes)
    )
    if sum(sizes) < tasks:
        raise CannotStep("More processors requested than permitted")
    return sizes
