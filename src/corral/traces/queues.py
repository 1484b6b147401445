"""Queues for the jobs of a replayed log. They come from a queue file, or there is one
queue for each virtual cluster (`vc`) of the log."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from corral.domain.errors import SpecInvalid
from corral.domain.ids import QueueName, is_name
from corral.domain.job import DEFAULT_QUEUE
from corral.domain.queue import ANY_TYPE, Queue
from corral.domain.queue_tree import QueueTree, whole_tree
from corral.domain.units import MILLIS_PER_GPU
from corral.replay.workload import Workload
from corral.traces.traces import Trace
from corral.wire.queue_file import is_queue_file, read_queues
from corral.wire.yaml_document import documents_of


def read_tree(path: Path) -> QueueTree:
    """Return the queue tree of a queue file, in the form that `corral apply` takes.

    Raises: SpecInvalid if the file is no queue file, or cannot be read.
    """
    try:
        text = path.read_text()
    except OSError as error:
        hint = "give a file with kind: queues, as for corral apply"
        raise SpecInvalid(
            f"{path} cannot be read: {error.strerror}", hint=hint
        ) from error
    documents = documents_of(text, source=str(path), toml=path.suffix == ".toml")
    if len(documents) > 1 or not is_queue_file(documents[0]):
        hint = "write kind: queues, and the fields of docs/reference/schema/queues_file.json"
        raise SpecInvalid(
            f"{path} is not a file with one document of kind: queues", hint=hint
        )
    set_queues = read_queues(documents[0])
    assert set_queues.half_life_seconds is not None
    assert set_queues.min_runtime_seconds is not None
    tree = whole_tree(
        set_queues.queues,
        half_life_seconds=set_queues.half_life_seconds,
        min_runtime_seconds=set_queues.min_runtime_seconds,
    )
    return replace(
        tree,
        rack_locality_delay_seconds=set_queues.rack_locality_delay_seconds,
        pod_locality_delay_seconds=set_queues.pod_locality_delay_seconds,
    )


def names_in(tree: QueueTree, queues: Sequence[str]) -> list[QueueName]:
    """Return the tree's queue of the same name for each queue of the log; the default
    queue if the tree has no such queue."""
    return [
        QueueName(name) if name in tree.by_name else DEFAULT_QUEUE for name in queues
    ]


def left_out_of(tree: QueueTree, queues: Sequence[str]) -> list[str]:
    """Return messages about what the replay ignores, such as queues that the tree
    lacks."""
    strange = [name for name in queues if name != "-" and name not in tree.by_name]
    brief = [queue.name for queue in tree.queues if queue.longest_seconds is not None]
    dated = [
        q.name
        for q in tree.queues
        if q.budget is not None and q.budget.until is not None
    ]
    return [
        *(
            [
                "the replay ignores the max_duration of the queues "
                + _shorten_name_list(brief)
            ]
            * bool(brief)
        ),
        *(
            [
                "there is no queue "
                + _shorten_name_list(strange)
                + ": its jobs are in the queue default"
            ]
            * bool(strange)
        ),
        *(
            [
                "the replay ignores the end of the budgets of the queues "
                + _shorten_name_list(dated)
            ]
            * bool(dated)
        ),
    ]


def _shorten_name_list(names: Sequence[str]) -> str:
    more_text = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(names[:5]) + more_text


def tree_of_log(
    trace: Trace, sizes: Sequence[int], own: Mapping[str, int]
) -> QueueTree:
    """Return a tree with one queue for each queue that the log names.

    Args:
        sizes: GPUs of each node.
        own: GPUs of each queue, from the list of nodes. If it is empty, the GPUs are
            divided in proportion to the GPU time of the queues' jobs; remaining
            fractions of a GPU belong to no queue.

    Raises: SpecInvalid if no job of the log names a queue.
    """
    names = [name for name in trace.queues if is_name(name)]
    if not names:
        raise SpecInvalid(
            "no job of this log has a vc (virtual cluster), from which queues could be made",
            hint="add a column vc to the log, or set the queues with --queues FILE",
        )
    gpus = own or _by_gpu_time(trace.workload, trace.queues, sum(sizes))
    return whole_tree(
        [
            Queue(
                name=QueueName(name), nominal=((ANY_TYPE, gpus[name] * MILLIS_PER_GPU),)
            )
            if gpus.get(name)
            else Queue(name=QueueName(name))
            for name in names
        ]
    )


def _by_gpu_time(work: Workload, queues: Sequence[str], gpus: int) -> dict[str, int]:
    seconds: Counter[str] = Counter()
    for queue, gpu_count, took in zip(
        work.queues, work.gpus, work.durations, strict=True
    ):
        seconds[queues[queue]] += round(gpu_count * took)
    total = seconds.total()
    return {
        name: int(gpus * own_seconds / total) for name, own_seconds in seconds.items()
    }
