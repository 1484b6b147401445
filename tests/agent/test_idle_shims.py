"""A shim takes another attempt when its own has ended, and has nothing of the one
before."""

import os
import select
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from corral.agent import containment, journal, shim_pool
from corral.agent.processes import LocalProcess, children, lives
from corral.agent.shim_pool import IdleShims
from corral.domain.observed_state import AttemptKey
from tests.agent.nodes import Node, launch_of, node, stop_of
from tests.patience import PATIENCE_SECONDS

has_cgroups = pytest.mark.skipif(
    containment.probe().kind != containment.CGROUP,
    reason="shims without cgroups serve once",
)
OPEN = "set -- /proc/$PPID/fd/*; echo $#"


def shim_of(here: Node, key: AttemptKey) -> LocalProcess:
    records = journal.read(here.work(key).parent / journal.FILE) or []
    return LocalProcess(
        *next(one["shim"] for one in records if one["type"] == "launch")
    )


async def ended(here: Node, run: str, name: str) -> AttemptKey:
    key = await here.launch(launch_of(run, name))
    assert not (await here.ended(key)).trouble
    return key


async def idle(here: Node, shim: LocalProcess) -> None:
    """Wait until it waits: an attempt is told to have ended a moment before."""
    name = Path(f"/proc/{shim.pid}/comm")
    await here.until(lambda: name.read_text() == "corral-idle\n", "a shim that waits")


@has_cgroups
async def test_attempts_in_turn_have_one_shim_and_nothing_of_each_other(
    node_dir: Path,
) -> None:
    async with node(node_dir) as here:
        keys = []
        for number in range(6):
            keys.append(await ended(here, f"{OPEN}; exit {number}", f"j{number}"))
            await idle(here, shim_of(here, keys[-1]))
        assert len({shim_of(here, key).pid for key in keys}) == 1
        # the first has more of the launcher's
        counts = [int(here.log(key)) for key in keys[1:]]
        assert max(counts) - min(counts) <= 2, f"descriptors are left open: {counts}"
        codes = [here.seen(key).exits[0][1].code for key in keys]
        assert codes == [0, 1, 2, 3, 4, 5]


@has_cgroups
async def test_a_shim_that_was_killed_while_it_waited_costs_nothing(
    node_dir: Path,
) -> None:
    async with node(node_dir) as here:
        first = shim_of(here, await ended(here, "true", "j1"))
        await idle(here, first)
        os.kill(first.pid, 9)
        second = shim_of(here, await ended(here, "true", "j2"))
        assert second.pid != first.pid


@has_cgroups
async def test_attempts_at_once_have_a_shim_each(node_dir: Path) -> None:
    async with node(node_dir) as here:
        await ended(here, "true", "j1")
        keys = [
            await here.launch(launch_of("echo up; sleep 3600", f"j{n}"))
            for n in (2, 3, 4)
        ]
        for key in keys:
            await here.says(key, "up")
        assert len({shim_of(here, key).pid for key in keys}) == 3
        os.kill(shim_of(here, keys[0]).pid, 9)
        assert "was killed" in (await here.ended(keys[0])).trouble
        here.supervisor.stop(stop_of(keys[1], 0.3))
        assert not (await here.ended(keys[1])).trouble
        assert here.seen(keys[2]).exits == ()


@has_cgroups
async def test_shims_that_wait_end_with_their_launcher(node_dir: Path) -> None:
    async with node(node_dir) as here:
        shim = shim_of(here, await ended(here, "true", "j1"))
        busy = await here.launch(launch_of("echo up; sleep 3600", "j2"))
        await here.says(busy, "up")
        other = shim_of(here, await ended(here, "true", "j3"))
        launcher = LocalProcess.recorded(node_dir / "launcher.pid")
        assert launcher is not None
        launcher.signal(9)
        waiting = {shim.pid, other.pid} - {shim_of(here, busy).pid}
        await here.until(
            lambda: not any(map(lives, waiting)), "the end of shims that wait"
        )
        assert shim_of(here, busy).lives


@pytest.fixture
def poll() -> Iterator[select.epoll]:
    with select.epoll() as made:
        yield made


def serve(launcher: socket.socket) -> NoReturn:
    """A shim whose attempts are over at once."""
    try:
        while launcher.send(b"i") and socket.recv_fds(launcher, 16, 1)[1]:
            pass
    finally:
        os._exit(0)


def hear(shims: IdleShims, poll: select.epoll, count: int) -> None:
    """Let so many shims say that they wait."""
    end = time.monotonic() + PATIENCE_SECONDS
    while count > 0 and time.monotonic() < end:
        for descriptor, _ in poll.poll(PATIENCE_SECONDS):
            shims.hear(descriptor)
            count -= 1
    assert count == 0


def mine() -> set[int]:
    return set(children(os.getpid()))


def reaped(pids: set[int]) -> None:
    for pid in pids:
        os.waitpid(pid, 0)


def test_a_shim_that_waits_too_long_or_served_enough_ends(
    poll: select.epoll, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shim_pool, "MOST_ATTEMPTS", 2)
    before = mine()
    agent, other = socket.socketpair()
    shims = IdleShims(poll)
    shims.start(agent, serve)
    (pid,) = mine() - before
    hear(shims, poll, 1)
    assert 0 < (shims.wait_seconds() or 0) <= shim_pool.IDLE_SECONDS
    shims.start(agent, serve)
    assert mine() - before == {pid}, "it was not asked again"
    hear(shims, poll, 1)
    assert shims.wait_seconds() is None, "it has served as often as it may"
    reaped({pid})

    shims.start(agent, serve)
    new = mine() - before
    hear(shims, poll, 1)
    shims.expire()
    assert shims.wait_seconds() is not None
    monkeypatch.setattr(shim_pool, "IDLE_SECONDS", 0.0)
    shims.expire()
    assert shims.wait_seconds() is None
    reaped(new)
    agent.close()
    other.close()


def test_more_than_enough_do_not_wait(
    poll: select.epoll, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shim_pool, "MOST_IDLE", 2)
    before = mine()
    agent, other = socket.socketpair()
    shims = IdleShims(poll)
    for _ in range(4):
        shims.start(agent, serve)
    started = mine() - before
    assert len(started) == 4
    hear(shims, poll, 4)
    assert sum(os.waitpid(pid, os.WNOHANG)[0] != 0 for pid in started) <= 2
    shims.close()
    agent.close()
    other.close()
