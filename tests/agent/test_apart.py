"""Two users on one machine, where the agent is root: neither reaches what is the
other's.

Their accounts are uids without an entry in /etc/passwd, as a `uid_range` gives them.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from corral.agent.image.root import ImageRoot
from corral.agent.job_account import JobAccount
from corral.agent.shim.user_isolation import TMP
from corral.agent.supervisor.kill_node import kill_node
from corral.domain.node_policy import NodePolicy
from corral.domain.observed_state import AttemptKey, Phase
from tests.agent.nodes import Node, launch_of, left_of, node, write_policy

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root changes accounts"),
]
SECRET = "canary-of-ann"
OWN = f"own-{os.getpid()}"  # no other worker or copy of these tests writes it
HOLD = (
    f"echo {SECRET} > /tmp/{OWN}; echo {SECRET} > /var/tmp/{OWN}; echo {SECRET} > /dev/shm/{OWN}; "
    f"echo {SECRET} > ~/{OWN}; echo {SECRET} > {OWN}; chmod 644 ~/{OWN} {OWN} /tmp/{OWN}; "
    f"ARGUMENT={SECRET} sh -c 'echo ready; sleep 3600; :' {SECRET}"
)


def account(node_dir: Path, name: str, uid: int) -> JobAccount:
    home = node_dir / "homes" / str(uid)
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.chown(home, uid, uid)
    return JobAccount(name=name, uid=uid, groups=(uid,), home=str(home))


async def begin(
    here: Node, name: str, uid: int, run: str, attempt: int = 1
) -> AttemptKey:
    launch = launch_of(run, name, attempt)
    here.work(launch.key).mkdir(parents=True)
    await here.supervisor.launch(
        launch, here.work(launch.key), {}, account=account(here.dir, name, uid)
    )
    return launch.key


async def said(here: Node, name: str, uid: int, run: str) -> str:
    key = await begin(here, name, uid, run)
    seen = await here.ended(key)
    assert seen.phase == Phase.ENDED, seen
    return here.log(key)


@asynccontextmanager
async def two_users(
    node_dir: Path, **policy: str
) -> AsyncIterator[tuple[Node, AttemptKey]]:
    """A node on which Ann runs something and holds all kinds of things."""
    for folder in (node_dir, node_dir / "attempts"):
        # as in a node's private root, which shows the way to attempts
        folder.chmod(0o755)
    (node_dir / "homes").mkdir(mode=0o711)
    write_policy(node_dir, NodePolicy(**policy))  # type: ignore[arg-type]
    async with node(node_dir) as here:
        key = await begin(here, "ann", 200_001, HOLD)
        await here.says(key, "ready")
        yield here, key


async def test_nothing_of_one_user_is_within_reach_of_another(node_dir: Path) -> None:
    """Environment, arguments, files, logs, sockets: user A against user B."""
    async with two_users(node_dir) as (here, key):
        folder = here.work(key).parent
        home = f"{here.dir}/homes/200001"
        looks = [
            "cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline | tr '\\0' ' '",
            f"ls -lR /tmp/. /var/tmp/. /dev/shm/. | grep -w {OWN}",
            f"cat /tmp/{OWN} /var/tmp/{OWN} /dev/shm/{OWN}",
            f"cat {home}/{OWN}; ls {home}",
            f"cat {folder}/work/{OWN} {folder}/logs/rank-0.log {folder}/launch.json",
            f"cat {folder}/{TMP}/tmp/{OWN} {folder}/journal.jsonl",
        ]
        output = await said(
            here, "bob", 200_002, "; ".join(f"({one})" for one in looks)
        )
        assert SECRET not in output
        assert output.count("No such file") + output.count("Permission denied") >= 6
        # What a connection to the socket of a shim needs; the user's own ranks have it.
        look = f"[ -w {folder}/shim.sock ] && echo reached || echo kept"
        reader, writer = await here.supervisor.attach(key, 0, True, command=look)
        assert (await reader.read()).decode().split() == ["reached"]
        writer.close()
        assert (await said(here, "bob2", 200_002, look)).split() == ["kept"]
        killed = await said(
            here, "bob3", 200_002, "kill -9 -1; echo $(ls /proc | grep -c '^[0-9]')"
        )
        assert int(killed.split()[-1]) < 10
        assert here.seen(key).phase == Phase.UP


async def test_ranks_and_shells_of_an_attempt_share_what_is_its_own(
    node_dir: Path,
) -> None:
    async with two_users(node_dir) as (here, key):
        reader, writer = await here.supervisor.attach(
            key, 0, True, command=f"cat /tmp/{OWN} /dev/shm/{OWN}; echo $$ $HOME"
        )
        shown = (await reader.read()).decode()
        writer.close()
        assert shown.count(SECRET) == 2
        assert int(shown.split()[-2]) < 1000  # of its own numbering
        assert (here.work(key).parent / TMP / "tmp" / OWN).read_text().strip() == SECRET
        assert not Path(f"/tmp/{OWN}").exists()


async def test_in_an_image_too_processes_and_shared_memory_are_the_attempts_own(
    node_dir: Path,
) -> None:
    async with two_users(node_dir) as (here, _):
        launch = launch_of(
            "cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline | tr '\\0' ' '; ls -a /dev/shm /tmp; "
            f"echo mine > /dev/shm/{OWN}; ls -d /proc/self /etc",
            "bob",
        )
        work, root = here.work(launch.key), node_dir / "unpacked"
        work.mkdir(parents=True)
        (root / "tmp").mkdir(parents=True)
        (root / "tmp").chmod(0o1777)
        seen = (
            str(work.parent),
            *(at for at in ("/usr", "/bin", "/lib", "/lib64", "/etc")),
        )
        await here.supervisor.launch(
            launch,
            work,
            {"PATH": "/usr/bin:/bin"},
            ImageRoot(root=str(root), seen=seen),
            account(node_dir, "bob", 200_002),
        )
        ended = await here.ended(launch.key)
        assert [end.code for _, end in ended.exits] == [0], (
            ended,
            here.log(launch.key),
        )
        assert SECRET not in here.log(launch.key)
        assert f"{OWN}\n" not in here.log(launch.key)
        assert not Path(f"/dev/shm/{OWN}").exists()


async def test_a_node_may_share_tmp_but_not_processes(node_dir: Path) -> None:
    async with two_users(node_dir, tmp="shared") as (here, key):
        try:
            output = await said(
                here, "bob", 200_002, f"cat /tmp/{OWN}; cat /proc/[0-9]*/cmdline"
            )
            assert output.count(SECRET) == 1
        finally:
            for place in (f"/tmp/{OWN}", f"/var/tmp/{OWN}", f"/dev/shm/{OWN}"):
                Path(place).unlink()


async def test_nothing_is_left_when_the_attempt_is_over(node_dir: Path) -> None:
    async with two_users(node_dir) as (here, key):
        done = await begin(here, "bob", 200_002, "sleep 3600 & echo up; exit 3")
        seen = await here.ended(done)
        assert [end.code for _, end in seen.exits] == [3]
        kept = here.work(done).parent
        here.supervisor.settle(done)
        await here.until(lambda: not kept.exists(), "the end of its folder")
    kill_node(node_dir)
    assert left_of(node_dir) == []
