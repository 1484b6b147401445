"""Queues that are not a tree, each with the field and the text of a fault."""

from math import inf, nan
from typing import Any

from corral.domain.ids import QueueName
from corral.domain.queue import ANY_TYPE, Budget, Queue


def queue(name: str, parent: str | None = None, gpus: int = 0, **more: Any) -> Queue:
    nominal = ((ANY_TYPE, gpus * 1000),) if gpus else ()
    above = QueueName(parent) if parent else None
    fields: dict[str, Any] = {"nominal": nominal} | more
    return Queue(name=QueueName(name), parent=above, **fields)


TYPES = (("h100", 1000), ("h100", 2000))
RATES = (("any", 1.0),)
FAULTY_QUEUES: list[tuple[list[Queue], str, str]] = [
    ([queue("a"), queue("a")], "name", "2 queues have this name"),
    ([queue("a/b")], "name", "is not a valid name"),
    ([queue("a", "b")], "parent", "there is no queue b"),
    ([queue("a", "b"), queue("b", "a")], "parent", "its own ancestor"),
    ([queue("a", "a")], "parent", "its own ancestor"),
    (
        [queue("p", gpus=4), queue("a", "p", 3), queue("b", "p", 2)],
        "gpus",
        "own 1 more",
    ),
    ([queue("a", weight=0.0)], "weight", "out of bounds"),
    ([queue("a", weight=1e308)], "weight", "at most 1,000,000"),
    ([queue("a", weight=nan)], "weight", "out of bounds"),
    ([queue("a", longest_seconds=inf)], "max_duration", "above 0 s and finite"),
    ([queue("a", budget=Budget(gpu_hours=nan))], "budget", "at least 0 and finite"),
    (
        [queue("a", budget=Budget(gpu_hours=-1.0))],
        "budget",
        "amount must be at least 0",
    ),
    (
        [queue("a", budget=Budget(money=inf, rates=(("any", 1.0),)))],
        "budget",
        "amount must be at least 0 and finite",
    ),
    (
        [queue("a", budget=Budget(money=1, rates=(("any", nan),)))],
        "budget",
        "each rate",
    ),
    (
        [queue("a", budget=Budget(gpu_hours=1, period_seconds=inf))],
        "budget",
        "period must be",
    ),
    ([queue("a", budget=Budget(gpu_hours=1, until=nan))], "budget", "not a valid date"),
    (
        [queue("a", gpus=2, lend_limit_millis=3000)],
        "lend",
        "at most the 2 GPUs that it owns",
    ),
    (
        [queue("a", gpus=1, lend_limit_millis=3000)],
        "lend",
        "at most the 1 GPU that it owns",
    ),
    (
        [queue("a", gpus=1), queue("b", "a", gpus=2)],
        "gpus",
        "the queue owns 1 GPU; the queues below",
    ),
    ([queue("a", longest_seconds=0.0)], "max_duration", "above 0 s and finite"),
    (
        [queue("a", lowest_priority=5, highest_priority=1)],
        "priorities",
        "lowest priority 5 is above the highest 1",
    ),
    ([queue("a", budget=Budget())], "budget", "either gpu_hours or money"),
    ([queue("a", budget=Budget(money=5.0))], "budget", "rates"),
    (
        [queue("a", budget=Budget(gpu_hours=1, period_seconds=99, until=9))],
        "budget",
        "cannot be set together",
    ),
    (
        [queue(f"q{i}", f"q{i - 1}" if i else None) for i in range(17)],
        "parent",
        "levels",
    ),
    ([queue("a", borrow_limit_millis=-1)], "borrow", "not be negative"),
    ([queue("a", most_per_user_millis=-1)], "max_per_user", "not be negative"),
    ([queue("a", gpus=-1)], "gpus", "not be negative"),
    ([queue("a", gpus=2, lend_limit_millis=-1)], "lend", "not be negative"),
    ([queue("a", nominal=TYPES)], "gpus", "listed twice"),
    ([queue("a", allow=("not a user",))], "allow", "neither a user's name"),
    ([queue("a", operators=("not a user",))], "operators", "not a valid user name"),
    (
        [queue("a", budget=Budget(gpu_hours=2.5, rates=RATES))],
        "budget",
        "not with gpu_hours",
    ),
    ([queue("a", budget=Budget(money=7, period_seconds=5))], "budget", "1 minute"),
    (
        [queue("p", nominal=(("h100", 500),)), queue("a", "p", 2)],
        "gpus",
        "own 2 more",
    ),
]
