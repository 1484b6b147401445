"""Sort order of table rows. No I/O."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Order(Generic[R]):
    """Sort order of a table by one column. `down`: highest first; rows without a value
    are last either way."""

    title: str
    key: Callable[[R], Any]
    down: bool = False


def ordered(rows: Sequence[R], order: Order[R], *, turned: bool) -> list[R]:
    """Return the rows, sorted by `order`. Rows with equal values keep their order.
    `turned`: reverse the order."""
    keyed = [(order.key(row), row) for row in rows]
    known_pairs = [pair for pair in keyed if pair[0] is not None]
    known_pairs.sort(key=lambda pair: pair[0], reverse=order.down != turned)
    return [row for _, row in known_pairs] + [row for key, row in keyed if key is None]
