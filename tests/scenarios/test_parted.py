"""What a network does between a head and its machines, judged by what the workers
wrote."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.scenarios.house import until
from tests.scenarios.machines import Machines, machines
from tests.scenarios.workers import Worker, parted_for, saves_of

pytestmark = pytest.mark.xdist_group("machines")
CLOCK = """
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long wrong_by(void) {
    char text[32] = {0};
    char *name = getenv("CLOCK");
    int file = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return 0;
    if (read(file, text, sizeof text - 1) < 0) text[0] = 0;
    close(file);
    return atol(text);
}

int clock_gettime(clockid_t clock, struct timespec *at) {
    int failed = syscall(SYS_clock_gettime, clock, at);
    if (!failed && clock == CLOCK_REALTIME) at->tv_sec += wrong_by();
    return failed;
}

time_t time(time_t *out) {
    struct timespec at;
    clock_gettime(CLOCK_REALTIME, &at);
    if (out) *out = at.tv_sec;
    return at.tv_sec;
}

int gettimeofday(struct timeval *out, void *zone) {
    struct timespec at;
    clock_gettime(CLOCK_REALTIME, &at);
    out->tv_sec = at.tv_sec;
    out->tv_usec = at.tv_nsec / 1000;
    return 0;
}
"""


@pytest.fixture(scope="module")
def two() -> Iterator[Machines]:
    """Two machines with one GPU each, which both see the folder of saves."""
    with machines("w1", "w2") as found:
        saves_of(found).mkdir()
        for name in ("w1", "w2"):
            more = ("--shared", str(saves_of(found)))
            found[name].join(found.line(), "--gpus", "1", "--pretend", *more)
        yield found


BOTH = [("head", "w1"), ("w1", "head")]
WAYS = [
    pytest.param(BOTH, id="both"),
    pytest.param(BOTH[:1], id="from head", marks=pytest.mark.soak),
    pytest.param(BOTH[1:], id="to head", marks=pytest.mark.soak),
]


@pytest.mark.parametrize("ways", WAYS)
def test_a_machine_that_is_cut_off_for_a_while_keeps_its_job(
    two: Machines, ways: list[tuple[str, str]]
) -> None:
    worker = Worker(two, constraints={"node": "w1"})
    parted_for(two, ways, 5.0)
    two.until_node("w1", "alive")
    worker.moves_on()
    worker.end()
    assert worker.begun() == ["1 begins on w1"]


@pytest.mark.soak
@pytest.mark.parametrize(
    "ways", [BOTH, BOTH[:1], BOTH[1:]], ids=["both", "from head", "to head"]
)
def test_a_minute_of_silence_is_no_proof_for_a_job_that_does_not_save(
    two: Machines, ways: list[tuple[str, str]]
) -> None:
    worker = Worker(two)
    two.until_node("w1", "alive")
    where = worker.begun()[0].split()[-1]
    swapped = [tuple(one.replace("w1", where) for one in way) for way in ways]
    parted_for(two, swapped, 60.0)  # type: ignore[arg-type]
    two.until_node(where, "alive")
    worker.moves_on()
    worker.end()
    assert worker.begun() == [f"1 begins on {where}"]


def test_a_job_that_saves_goes_on_elsewhere_and_the_first_attempt_is_ended(
    two: Machines,
) -> None:
    worker = Worker(two, checkpoint={"path": str(saves_of(two))}, disconnect="replace")
    where = worker.begun()[0].split()[-1]
    other = {"w1": "w2", "w2": "w1"}[where]
    with two.hosts.parted("head", where):
        until(lambda: len(worker.begun()) == 2, "it begins elsewhere")
    two.until_node(where, "alive")
    worker.until_gone(1)
    worker.moves_on()
    worker.end()
    assert worker.begun()[:2] == [f"1 begins on {where}", f"2 begins on {other}"]


def clock_library(folder: Path) -> Path:
    """What makes the wall clock, and no other, go wrong by the seconds in $CLOCK."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        why = "there is no C compiler here, to make a clock of: apt-get install gcc libc6-dev"
        if os.environ.get("CI") == "true":
            pytest.fail(why)
        pytest.skip(why)
    source, library = folder / "clock.c", folder / "clock.so"
    source.write_text(CLOCK)
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-o", str(library), str(source)], check=True
    )
    return library


def test_a_clock_that_is_set_hours_forward_and_back_ends_no_job(tmp_path: Path) -> None:
    library, clock = clock_library(tmp_path), tmp_path / "seconds"
    clock.write_text("0")
    with machines("w1") as found:
        found["w1"].env |= {"LD_PRELOAD": str(library), "CLOCK": str(clock)}
        found["w1"].join(found.line(), "--gpus", "1", "--pretend")
        worker = Worker(found, max_duration="1h")
        for step in (7200, -7200, 0):
            clock.write_text(str(step))
            told = found["w1"].host.run(
                [sys.executable, "-c", "import time; print(time.time())"],
                env=found["w1"].environment(),
            )
            assert abs(float(told.stdout) - time.time() - step) < 600
            for _ in range(3):
                worker.moves_on()
                time.sleep(1.0)
            assert found.node("w1").liveness == "alive"
        worker.end()
        assert worker.begun() == ["1 begins on w1"]
