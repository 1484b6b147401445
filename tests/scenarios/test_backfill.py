"""A wide job is promised a start: short ones go before it, a long one does not, and it
starts."""

import json
from collections.abc import Iterator

import pytest

from tests.scenarios.house import House, house, until, wait_in_shell

pytestmark = pytest.mark.xdist_group("backfill")

QUEUES = """kind: queues
queues:
  - {name: easy, policy: backfill}
"""


@pytest.fixture(scope="module")
def here() -> Iterator[House]:
    with house("--nodes", "2", "--gpus", "2") as made:
        made.apply(QUEUES)
        yield made


def submit(
    here: House, name: str, limit: str | None, *, nodes: int = 1, gpus: int = 1
) -> str:
    """A job that ends when its file is there."""
    limits = {} if limit is None else {"max_duration": limit}
    return here.submit(
        name,
        wait_in_shell(here.shared / f"{name}.done"),
        queue="easy",
        nodes=nodes,
        resources={"gpu": gpus, "cpu": 0.1},
        grace="1s",
        **limits,
    )


def state(here: House, job: str) -> str:
    return str(json.loads(here.ok("show", job, "--json"))["state"])


def test_short_jobs_go_before_a_promised_start_and_long_ones_after_it(
    here: House,
) -> None:
    first = submit(here, "first", "1h", gpus=2)
    until(lambda: state(here, first) == "RUNNING", "the first runs")
    wide = submit(here, "wide", "1h", nodes=2, gpus=2)
    until(
        lambda: json.loads(here.ok("why", wide, "--json"))["code"] == "Promised",
        "a promise",
    )
    said = here.ok("why", wide)
    assert "at the latest, when first" in said
    long = submit(here, "long", "2h")
    endless = submit(here, "endless", None)
    short = submit(here, "short", "10m")
    until(lambda: state(here, short) == "RUNNING", "the short one runs before it")
    assert {state(here, job) for job in (long, endless, wide)} == {"QUEUED"}
    for name in ("short", "first"):
        (here.shared / f"{name}.done").touch()
    until(lambda: state(here, wide) == "RUNNING", "the wide one starts when it can")
    assert {state(here, job) for job in (long, endless)} == {"QUEUED"}
    for name in ("wide", "long", "endless"):
        (here.shared / f"{name}.done").touch()
    until(lambda: state(here, endless) == "DONE", "all have had their turn")
