"""The agent makes the wanted attempts run and no other, whatever happens to the
head."""

import asyncio
import gzip
import io
import json
import tarfile
from pathlib import Path

import pytest

from corral.agent.head_channel import GATHER_SECONDS
from corral.domain.attempt import Save
from corral.domain.desired_state import Version
from corral.domain.ids import ClusterId
from corral.domain.observed_state import AttemptKey, Phase, Seen
from corral.wire.agent_messages import AttachNow, encode
from tests.agent.bench import (
    FakeRanks,
    agent_in,
    bench,
    key_of,
    launch_of,
    running,
    stop_of,
)
from tests.agent.fakehead import FakeHead
from tests.patience import NEVER_SECONDS, PATIENCE_SECONDS

ONE, TWO = key_of(1), key_of(2)


def phase_of(head: FakeHead, key: AttemptKey) -> Phase | None:
    seen = head.seen(key)
    return seen.phase if seen else None


def snapshot(**files: str) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as target:
        for name, text in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(text)
            target.addfile(info, io.BytesIO(text.encode()))
    return packed.getvalue()


def test_what_is_wanted_runs_once_however_often_it_is_said(tmp_path: Path) -> None:
    async def story() -> None:
        async with bench(tmp_path) as here:
            for counter in (1, 1, 1, 2, 3):
                await here.head.want(counter, run=(launch_of(ONE),))
            await here.until(lambda: phase_of(here.head, ONE) == Phase.UP)
            for counter in (4, 5):
                await here.head.want(counter, run=(launch_of(ONE),))
                newest = Version(term=1, counter=counter)
                await here.until(
                    lambda newest=newest: here.head.beats[-1].version == newest
                )
            assert here.ranks.launched == [ONE]

    asyncio.run(story())


def test_an_older_word_and_one_of_another_cluster_are_refused(tmp_path: Path) -> None:
    async def story() -> None:
        async with bench(tmp_path) as here:
            await here.head.want(5, term=2)
            await here.until(
                lambda: here.head.beats[-1].version == Version(term=2, counter=5)
            )
            await here.head.want(9, term=1, run=(launch_of(ONE),))
            await here.head.want(4, term=2, run=(launch_of(ONE),))
            await here.head.want(
                1, term=3, run=(launch_of(ONE),), cluster=ClusterId("other")
            )
            beats = len(here.head.beats)
            await here.until(lambda: len(here.head.beats) > beats + 1)
            assert here.ranks.launched == []
            await here.head.want(1, term=3, run=(launch_of(TWO),))
            await here.until(lambda: here.ranks.launched == [TWO])

    asyncio.run(story())


def test_an_agent_that_starts_anew_still_refuses_an_older_word(tmp_path: Path) -> None:
    async def story() -> None:
        async with bench(tmp_path) as here:
            await here.head.want(7, term=2)
            await here.until(
                lambda: here.head.beats[-1].version == Version(term=2, counter=7)
            )
        head, ranks = FakeHead(file=tmp_path / "head.json"), FakeRanks()
        await head.start()
        await head.want(6, term=2, run=(launch_of(ONE),))
        async with running(agent_in(tmp_path, ranks, [])):
            await head.until(lambda: len(head.beats) >= 2)
            assert head.beats[-1].version is None
            assert ranks.launched == []
            # the same word may be said again
            await head.want(7, term=2, run=(launch_of(ONE),))
            await head.until(lambda: ranks.launched == [ONE])
        await head.die()

    asyncio.run(story())


def test_what_the_head_does_not_name_is_left_alone_and_reported(tmp_path: Path) -> None:
    async def story() -> None:
        async with bench(tmp_path) as here:
            here.ranks.attempts[ONE] = Seen(key=ONE, phase=Phase.UP)
            here.agent.changed()
            await here.head.want(1, run=(launch_of(TWO),))
            await here.until(lambda: phase_of(here.head, TWO) == Phase.UP)
            assert phase_of(here.head, ONE) == Phase.UP
            assert here.ranks.stopped == []
            assert here.ranks.settled == []

    asyncio.run(story())


def test_an_ended_attempt_is_reported_until_it_is_settled_and_its_log_is_kept(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        async with bench(tmp_path) as here:
            await here.head.want(1, run=(launch_of(ONE),))
            await here.until(lambda: phase_of(here.head, ONE) == Phase.UP)
            logs = tmp_path / "attempts/j1.1/logs"
            logs.mkdir(parents=True)
            (logs / "rank-0.log").write_bytes(b"x" * 500_000)
            here.ranks.end(ONE, code=3)
            here.agent.changed()
            await here.until(lambda: phase_of(here.head, ONE) == Phase.ENDED)
            beats = len(here.head.beats)
            await here.until(lambda: len(here.head.beats) > beats + 1)
            ended = here.head.seen(ONE)
            assert ended is not None
            assert ended.exits[0][1].code == 3
            await here.head.want(2, settled=(ONE,))
            await here.until(lambda: here.head.seen(ONE) is None)
            assert here.head.log(ONE) == b"x" * 500_000
            assert here.ranks.settled == [ONE]

    asyncio.run(story())


def test_a_settled_attempt_waits_for_its_logs_but_not_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The head that takes no logs keeps the attempt on the node for a while, and no
    longer."""
    monkeypatch.setattr("corral.agent.converge.LOG_SECONDS", NEVER_SECONDS)

    async def story() -> None:
        async with bench(tmp_path) as here:
            here.head.refuse_logs()
            await here.head.want(1, run=(launch_of(ONE),))
            await here.until(lambda: phase_of(here.head, ONE) == Phase.UP)
            here.ranks.end(ONE)
            here.agent.changed()
            await here.until(lambda: phase_of(here.head, ONE) == Phase.ENDED)
            await here.head.want(2, settled=(ONE,))
            await here.until(lambda: here.agent.version() == Version(term=1, counter=2))
            beats = len(here.head.beats)
            await here.until(lambda: len(here.head.beats) > beats + 1)
            assert here.ranks.settled == []
            monkeypatch.setattr("corral.agent.converge.LOG_SECONDS", 0.0)
            await here.until(lambda: here.ranks.settled == [ONE])

    asyncio.run(story())


def test_stops_and_commits_reach_the_ranks_and_unknown_ones_are_answered(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        async with bench(tmp_path) as here:
            await here.head.want(1, run=(launch_of(ONE),))
            await here.until(lambda: phase_of(here.head, ONE) == Phase.UP)
            await here.head.want(
                2, stop=(stop_of(ONE), stop_of(TWO)), committed=((ONE, (5, 9)),)
            )
            # Under load the same orders arrive twice: the refused attempt is then
            # stopped as well.
            await here.until(lambda: stop_of(ONE) in here.ranks.stopped)
            assert (ONE, (5, 9)) in here.ranks.told_committed
            await here.until(lambda: phase_of(here.head, TWO) == Phase.REFUSED)

    asyncio.run(story())


def test_a_head_that_dies_and_comes_back_elsewhere_learns_all(tmp_path: Path) -> None:
    """Whole facts: what ended meanwhile, saves not yet recorded, and nothing started
    twice."""

    async def story() -> None:
        async with bench(tmp_path) as here:
            await here.head.want(1, run=(launch_of(ONE), launch_of(TWO)))
            await here.until(lambda: phase_of(here.head, TWO) == Phase.UP)
            await here.head.die()
            save = Save(
                job=ONE[0], attempt=ONE[1], step=40, path="/p", manifest_sha256="0" * 64,
                size_bytes=1, seconds=1.0, stall_seconds=0.1, at=0.0,
            )  # fmt: skip
            here.ranks.end(ONE, code=7, saves=(save,))
            here.agent.changed()
            await asyncio.sleep(0.3)
            here.head.port = 0
            here.head.beats.clear()
            await here.head.start()
            await here.until(lambda: phase_of(here.head, ONE) == Phase.ENDED)
            ended = here.head.seen(ONE)
            assert ended is not None
            assert ended.exits[0][1].code == 7
            assert ended.saves == (save,)
            assert sorted(here.ranks.launched) == [ONE, TWO]  # together, in any order
            assert here.head.hellos[-1].boot == here.head.hellos[0].boot

    asyncio.run(story())


def test_a_head_that_answers_no_beat_is_dialled_anew(tmp_path: Path) -> None:
    async def story() -> None:
        async with bench(tmp_path) as here:
            here.head.heard = False
            await here.until(lambda: len(here.head.hellos) >= 2)

    asyncio.run(story())


def test_changes_travel_at_once_and_those_that_come_together_travel_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once: none waits for the next beat of the clock, which never comes here."""
    for period in ("BEAT_SECONDS", "UNHEARD_SECONDS"):
        monkeypatch.setattr(f"corral.agent.head_channel.{period}", NEVER_SECONDS)

    async def story() -> None:
        async with bench(tmp_path) as here:
            clock = asyncio.get_running_loop().time
            beats, began = len(here.head.beats), clock()
            for number in range(200):
                here.ranks.end(key_of(number))
                here.agent.changed()
                await asyncio.sleep(0.0005)
            await here.until(lambda: len(here.head.beats[-1].seen) == 200)
            assert (
                len(here.head.beats) - beats <= (clock() - began) / GATHER_SECONDS + 2
            )

    asyncio.run(story())


def test_the_workdir_is_as_submitted_and_secrets_come_by_the_nodes_token(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        async with bench(tmp_path) as here:
            digest = here.head.snapshot(snapshot(**{"train.py": "print(1)"}))
            for key in (ONE, TWO):
                path = f"/v1/agents/secrets/{key[0]}/{key[1]}"
                here.head.answers[path] = (200, b'{"secrets": {"HF_TOKEN": "hush"}}')
            launches = [
                launch_of(k, workdir=digest, secrets=("HF_TOKEN",)) for k in (ONE, TWO)
            ]
            await here.head.want(1, run=tuple(launches))
            await here.until(lambda: len(here.ranks.works) == 2)
            for key in (ONE, TWO):
                work = here.ranks.works[key]
                assert work == tmp_path / f"attempts/{key[0]}.{key[1]}/work"
                assert (work / "train.py").read_text() == "print(1)"
                assert here.ranks.environments[key]["HF_TOKEN"] == "hush"
            fetched = [path for path in here.head.asked if "snapshots" in path]
            assert len(fetched) == 1

    asyncio.run(story())


def test_whose_fault_a_failed_start_is(tmp_path: Path) -> None:
    """A snapshot that the head has not is the cluster's; what the user sent is the
    user's."""

    async def story() -> None:
        async with bench(tmp_path) as here:
            missing, broken, evil = key_of(3), key_of(4), key_of(5)
            here.head.answers[f"/v1/agents/secrets/{ONE[0]}/1"] = (
                200,
                b'{"secrets": {}}',
            )
            torn = here.head.snapshot(gzip.compress(b"no archive at all" * 99))
            out = here.head.snapshot(snapshot(**{"../../evil": "x"}))
            await here.head.want(
                1,
                run=(
                    launch_of(ONE, secrets=("NEVER_SET",)),
                    launch_of(missing, workdir="0" * 64),
                    launch_of(broken, workdir=torn),
                    launch_of(evil, workdir=out),
                ),
            )
            keys = (ONE, missing, broken, evil)
            await here.until(lambda: all(phase_of(here.head, key) for key in keys))
            await here.until(
                lambda: all(phase_of(here.head, key) == Phase.REFUSED for key in keys)
            )
            seen = {key: here.head.seen(key) for key in keys}
            assert [one.trouble_is_infra for one in seen.values() if one] == [
                False, True, False, False,
            ]  # fmt: skip
            told = seen[ONE]
            assert told is not None
            assert "NEVER_SET" in told.trouble
            assert not (tmp_path / "evil").exists()
            assert here.ranks.launched == []

    asyncio.run(story())


def test_what_came_is_used_only_when_it_is_what_was_submitted(tmp_path: Path) -> None:
    async def story() -> None:
        async with bench(tmp_path, tries_seconds=NEVER_SECONDS) as here:
            good = snapshot(a="as submitted")
            digest = here.head.snapshot(good)
            path = f"/v1/agents/snapshots/{digest}"
            here.head.answers[path] = (200, snapshot(a="something else"))
            await here.head.want(1, run=(launch_of(ONE, workdir=digest),))
            await here.until(lambda: path in here.head.asked)
            here.head.answers[path] = (200, good)
            await here.until(lambda: phase_of(here.head, ONE) == Phase.UP)
            assert (here.ranks.works[ONE] / "a").read_text() == "as submitted"

    asyncio.run(story())


def test_what_is_stopped_while_it_is_prepared_never_starts(tmp_path: Path) -> None:
    async def story() -> None:
        async with bench(tmp_path, tries_seconds=NEVER_SECONDS) as here:
            digest = here.head.snapshot(snapshot(a="1"))
            here.head.answers[f"/v1/agents/snapshots/{digest}"] = (503, b"{}")
            await here.head.want(1, run=(launch_of(ONE, workdir=digest),))
            await here.until(lambda: phase_of(here.head, ONE) == Phase.STARTING)
            await here.head.want(2, stop=(stop_of(ONE),))
            await here.until(lambda: phase_of(here.head, ONE) == Phase.REFUSED)
            assert here.ranks.launched == []

    asyncio.run(story())


def test_a_stop_that_meets_a_launch_halfway_follows_it(tmp_path: Path) -> None:
    async def story() -> None:
        async with bench(tmp_path) as here:
            here.ranks.hold = asyncio.Event()
            await here.head.want(1, run=(launch_of(ONE),))
            await here.until(lambda: here.ranks.launched == [ONE])
            await here.head.want(2, stop=(stop_of(ONE),))
            await here.until(lambda: here.agent.version() == Version(term=1, counter=2))
            assert here.ranks.stopped == []
            here.ranks.hold.set()
            await here.until(lambda: here.ranks.stopped == [stop_of(ONE)])

    asyncio.run(story())


def test_a_terminal_is_dialled_and_carries_bytes(tmp_path: Path) -> None:
    async def story() -> None:
        async with bench(tmp_path) as here:
            request = AttachNow(
                session="s1", job=ONE[0], attempt=ONE[1], rank=0, shell=True
            )
            for connection in list(here.head.connections):
                if connection.request and connection.request.path.endswith(
                    "heartbeats"
                ):
                    await connection.send(encode(request))
            await here.until(lambda: here.head.terminals)
            terminal = here.head.terminals["s1"]
            await terminal.send(b"ls")
            assert (
                await asyncio.wait_for(terminal.recv(), PATIENCE_SECONDS) == b"echo ls"
            )
            assert here.attached == [request]
            await terminal.close()

    asyncio.run(story())


def test_a_silent_head_ends_what_asked_for_it_and_nothing_else(tmp_path: Path) -> None:
    async def story() -> None:
        async with bench(tmp_path) as here:
            await here.head.want(
                1, run=(launch_of(ONE, self_stop_seconds=3.0), launch_of(TWO))
            )
            await here.until(lambda: phase_of(here.head, TWO) == Phase.UP)
            await here.head.die()
            await here.until(lambda: here.ranks.stopped)
            assert {stop.key for stop in here.ranks.stopped} == {ONE}
            await here.head.start()

    asyncio.run(story())


def test_nothing_of_a_nodes_secrets_is_said_in_errors(tmp_path: Path) -> None:
    async def story() -> str:
        async with bench(tmp_path) as here:
            path = f"/v1/agents/secrets/{ONE[0]}/{ONE[1]}"
            here.head.answers[path] = (
                200,
                json.dumps({"secrets": {"OTHER": "canary"}}).encode(),
            )
            await here.head.want(1, run=(launch_of(ONE, secrets=("WANTED",)),))
            await here.until(lambda: phase_of(here.head, ONE) == Phase.REFUSED)
            return repr(here.head.beats)

    assert "canary" not in asyncio.run(story())
