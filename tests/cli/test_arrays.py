"""An array is stopped, suspended and resumed by its own name."""

from dataclasses import dataclass
from typing import Any

import pytest

from corral.cli.jobs import _members


@dataclass
class Row:
    id: str
    name: str
    array: str | None = None
    array_index: int | None = None


class Listing:
    """A client that knows three arrays and two plain jobs, newest first."""

    def jobs(self, *, limit: int) -> list[Row]:
        again = [Row(f"j9_{i}", f"sweep_{i}", "j9", i) for i in (1, 0)]
        once = [Row(f"j4_{i}", f"sweep_{i}", "j4", i) for i in (1, 0)]
        return [*again, Row("j7", "j9x"), *once, Row("j3", "tune_2"), Row("j2_0", "a_b_0", "j2", 0)]


@pytest.mark.parametrize(
    ("asked", "meant"),
    [
        ("j4", ["j4_0", "j4_1"]),
        ("sweep", ["j9_0", "j9_1"]),
        ("sweep_1", ["sweep_1"]),
        ("j4_1", ["j4_1"]),
        ("tune", ["tune"]),
        ("tune_2", ["tune_2"]),
        ("a_b", ["j2_0"]),
        ("a", ["a"]),
        ("nope", ["nope"]),
    ],
)
def test_a_name_means_the_job_or_the_newest_array_of_that_name(
    asked: str, meant: list[str]
) -> None:
    client: Any = Listing()
    assert _members(client, asked) == meant
