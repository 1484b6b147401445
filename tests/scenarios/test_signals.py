"""Signals to running jobs, by the command line, on a whole cluster of real
processes."""

from collections.abc import Iterator

import pytest

from tests.scenarios.house import House, house, until

pytestmark = pytest.mark.xdist_group("signals")
RUN = """
python3 -S -c '
import os, pathlib, signal, time
here = pathlib.Path(os.environ["CORRAL_SHARED"]) / ("rank" + os.environ["RANK"])
signal.signal(signal.SIGUSR1, lambda *_: here.with_suffix(".told").write_text("told"))
here.write_text("up")
while not here.with_name("enough").exists(): time.sleep(0.05)
print("went on to its end", flush=True)
'
"""


@pytest.fixture(scope="module")
def here() -> Iterator[House]:
    with house("--nodes", "2", "--gpus", "1", "--pretend") as made:
        yield made


def test_ranks_on_two_nodes_get_it_and_go_on(here: House) -> None:
    here.ok(
        "run",
        "-d",
        "-n",
        "two",
        "--no-workdir",
        "--nodes",
        "2",
        "--gpus",
        "1",
        "--",
        RUN,
    )
    for rank in ("rank0", "rank1"):
        here.until_there(here.shared / rank)
    here.until_state("two", "RUNNING")
    said = here.ok("cancel", "-y", "--signal", "SIGUSR1", "two")
    assert "SIGUSR1 was sent to two" in said
    assert "not cancelled" in said
    for rank in ("rank0.told", "rank1.told"):
        here.until_there(here.shared / rank)
    refused = here.corral("cancel", "-y", "--signal", "FROB", "two")
    assert refused.returncode != 0
    assert "'FROB' is not a signal" in refused.stderr
    (here.shared / "enough").touch()
    job = here.until_over("two")
    assert (job.state, len(job.attempts)) == ("DONE", 1)
    until(lambda: here.logs("two").count("went on to its end") == 2, "both ends")
    late = here.corral("cancel", "-y", "--signal", "USR1", "two")
    assert late.returncode != 0
    assert "two is DONE; only a running job can receive USR1" in late.stderr
