"""Signals to running jobs, and looks at their stacks, by the command line, on a whole
cluster of real processes."""

from collections.abc import Iterator

import pytest

from corral.domain.errors import Conflict
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


def test_the_rank_that_differs_is_shown_with_its_line(here: House) -> None:
    program = (
        "import os, pathlib, time\n"
        "def waits(): time.sleep(1000)\n"
        "def hangs(): time.sleep(1000)\n"
        "shared = pathlib.Path(os.environ['CORRAL_SHARED'])\n"
        "(shared / f'looks{os.environ[\"RANK\"]}').write_text('')\n"
        "(hangs if os.environ['RANK'] == '1' else waits)()"
    )
    wide = ("--nodes", "2", "--gpus", "1")
    here.ok(
        "run",
        "-d",
        "-n",
        "looks",
        "--no-workdir",
        *wide,
        "--",
        "python3",
        "-c",
        program,
    )
    for rank in (0, 1):
        here.until_there(here.shared / f"looks{rank}")
    until(lambda: "hangs" in here.ok("debug", "stacks", "looks"), "its stacks")
    first, last = here.ok("debug", "stacks", "looks").split("\n\n")[:2]
    assert first.startswith("1 of 2 processes: rank 0\n  waits ")
    assert last.startswith("1 of 2 processes: rank 1\n  hangs ")
    assert "rank 1" not in here.ok("debug", "stacks", "looks", "--rank", "0")
    assert "thread MainThread" in here.ok("debug", "stacks", "looks", "--all")
    here.ok("cancel", "-y", "looks")
    here.until_state("looks", "CANCELLED")
    with here.client() as client, pytest.raises(Conflict, match="it has no processes"):
        client.stacks("looks")
