"""Where groups are made and what is written into them, on made-up trees and on this
machine's."""

from pathlib import Path

import pytest

from corral.agent import containment
from corral.agent.containment import cgroup
from corral.agent.containment.base import ContainmentLimits, MemoryEvents
from corral.domain.attempt import Seat
from corral.domain.ids import NodeId
from tests.agent.nodes import launch_of, node

MIB = 1024 * 1024
LIMITS = ContainmentLimits(pids=100, cpu_millis=1500, memory_bytes=64 * MIB)
has_cgroups = pytest.mark.skipif(
    containment.probe().kind != containment.CGROUP,
    reason="needs cgroups that may be written",
)


def mountinfo(*mounts: tuple[Path, str, str]) -> str:
    """Lines of /proc/self/mountinfo: where, kind, options of the super block."""
    return "\n".join(
        f"{number} 1 0:{number} / {at} rw - {kind} {kind} rw,{options}"
        for number, (at, kind, options) in enumerate(mounts)
    )


def v2_tree(root: Path, *, own: str, hand_on_at: str) -> str:
    """Folders of version 2; only at `hand_on_at` do children have controllers."""
    folder = root
    for part in ("", *own.strip("/").split("/")):
        folder = folder / part
        folder.mkdir(exist_ok=True)
        (folder / "cgroup.procs").touch()
    (root / hand_on_at.strip("/") / "cgroup.subtree_control").touch()
    return mountinfo((root, "cgroup2", ""))


def group_files(folder: Path, *names: str) -> None:
    """What the kernel puts into a new group."""
    folder.mkdir(parents=True)
    for name in names:
        (folder / name).touch()


def files_of(folder: Path) -> dict[str, str]:
    return {file.name: file.read_text() for file in folder.iterdir() if file.is_file()}


@pytest.fixture
def accepting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups of version 2 answer with the controllers that were asked for, where they
    may."""

    def hand_on(folder: Path) -> set[str]:
        control = folder / "cgroup.subtree_control"
        return {"memory", "pids", "cpu"} if control.exists() else set()

    monkeypatch.setattr(cgroup, "hand_on", hand_on)


def test_version_2_goes_up_to_where_controllers_are_handed_on(
    tmp_path: Path, accepting: None
) -> None:
    mounts = v2_tree(tmp_path, own="/user.slice/scope", hand_on_at="/user.slice")
    place = cgroup.hierarchy(mounts, "0::/user.slice/scope\n")
    assert (place.version, place.folders[""]) == (2, tmp_path / "user.slice")


def test_version_2_without_controllers_still_keeps_processes_together(
    tmp_path: Path, accepting: None
) -> None:
    mounts = v2_tree(tmp_path, own="/a/b", hand_on_at="/a")
    (tmp_path / "a/cgroup.subtree_control").unlink()
    place = cgroup.hierarchy(mounts, "0::/a/b\n")
    assert place.folders[""] == tmp_path / "a/b"
    group = cgroup.create(place, "n1.j1.1", LIMITS)
    assert [warning.split(" is")[0] for warning in group.warnings] == [
        "the pids limit",
        "the memory limit",
        "the cpu limit",
    ]


def test_version_2_writes_its_limits_and_kills_in_one_word(
    tmp_path: Path, accepting: None
) -> None:
    mounts = v2_tree(tmp_path, own="/a", hand_on_at="/a")
    place = cgroup.hierarchy(mounts, "0::/a\n")
    (tmp_path / "a/corral").mkdir()
    (tmp_path / "a/corral/cgroup.subtree_control").touch()
    folder = tmp_path / "a/corral/n1.j1.1"
    # and swap is not counted here
    group_files(folder, "pids.max", "memory.max", "cpu.max")
    group = cgroup.create(place, "n1.j1.1", LIMITS)
    assert files_of(folder) == {
        "pids.max": "100",
        "memory.max": str(64 * MIB),
        "cpu.max": "150000 100000",
    }
    assert not group.warnings
    (folder / "cgroup.kill").touch()
    containment.recorded(group.record).kill()
    assert (folder / "cgroup.kill").read_text() == "1"
    (folder / "memory.events").write_text(
        "low 0\nmax 9\noom 2\noom_kill 1\noom_group_kill 0\n"
    )
    (folder / "memory.peak").write_text("67100000\n")
    assert group.memory() == (1, 67100000, 64 * MIB)
    assert group.pids() == []


def test_a_group_that_belongs_to_others_is_not_used(tmp_path: Path) -> None:
    with pytest.raises(cgroup.NoCgroups, match="not delegated"):
        cgroup.hierarchy(mountinfo((tmp_path, "cgroup2", "")), "0::/a\n")
    with pytest.raises(cgroup.NoCgroups, match="no cgroup file system"):
        cgroup.hierarchy(mountinfo((tmp_path, "tmpfs", "")), "0::/\n")


def test_version_1_is_below_the_own_group_of_each_controller(tmp_path: Path) -> None:
    for name in ("freezer", "pids/mine", "memory"):
        (tmp_path / name).mkdir(parents=True)
    mounts = mountinfo(
        *((tmp_path / at, "cgroup", at) for at in ("freezer", "pids", "memory"))
    )
    place = cgroup.hierarchy(mounts, "3:pids:/mine\n2:memory:/\n1:freezer:/\n0::/\n")
    assert place.version == 1
    assert place.folders["pids"] == tmp_path / "pids/mine"
    group_files(tmp_path / "pids/mine/corral/n1.j1.1", "pids.max")
    group_files(tmp_path / "memory/corral/n1.j1.1", "memory.limit_in_bytes")
    group = cgroup.create(place, "n1.j1.1", LIMITS)
    assert files_of(tmp_path / "pids/mine/corral/n1.j1.1") == {"pids.max": "100"}
    assert files_of(tmp_path / "memory/corral/n1.j1.1")["memory.limit_in_bytes"] == str(
        64 * MIB
    )
    assert [warning.split(" is")[0] for warning in group.warnings] == ["the cpu limit"]


@pytest.mark.parametrize(("version", "members"), [(1, "tasks"), (2, "cgroup.procs")])
def test_version_1_is_entered_without_the_lock_of_all_processes(
    tmp_path: Path, version: int, members: str
) -> None:
    folders = [tmp_path / "freezer", tmp_path / "memory"]
    for folder in folders:
        group_files(folder, "cgroup.procs", "tasks")
    cgroup.Cgroup(version=version, folders=folders).enter()
    for folder in folders:
        entered = [name for name, text in files_of(folder).items() if text == "0"]
        assert entered == [members]


def test_only_the_granted_gpus_may_be_opened() -> None:
    devices = cgroup._device_rules(ContainmentLimits(devices={195: (2, 3, 254, 255)}))
    assert devices[0] == ("devices.deny", "c 195:* rwm")
    assert [word for _, word in devices[1:]] == [
        f"c 195:{minor} rwm" for minor in (2, 3, 254, 255)
    ]


@has_cgroups
async def test_an_attempt_competes_for_the_cpu_as_one(node_dir: Path) -> None:
    async with node(node_dir) as here:
        await here.ended(key := await here.launch(launch_of("cat /proc/self/cgroup")))
        groups = [line.split(":") for line in here.log(key).splitlines()]
        own = [
            path for _, names, path in groups if "cpu" in names.split(",") or not names
        ]
        assert any("corral/n1-" in path for path in own)


@has_cgroups
async def test_limits_that_were_asked_for_hold(node_dir: Path) -> None:
    run = (
        "cat /proc/self/cgroup; date +%s.%N; "
        "timeout 1 sh -c 'while :; do :; done'; date +%s.%N; times"
    )
    seat = Seat(node=NodeId("n1"), cpu_millis=200)
    async with node(node_dir) as here:
        seen = await here.ended(await here.launch(launch_of(run, seat=seat)))
        assert seen.exits[0][1].code == 0
        log = here.log(launch_of(run).key)
        assert "corral/n1-" in log
        begun, over, _, children = log.splitlines()[-4:]
        seconds = sum(minutes_and_seconds(word) for word in children.split())
        # it may begin with some left
        assert seconds < 0.2 * (float(over) - float(begun)) + 0.2
    leftovers = [
        path
        for at in Path("/sys/fs/cgroup").glob("*/corral")
        for path in at.glob("n1-*")
    ]
    mine = cgroup_names(node_dir)
    assert not [path for path in leftovers if path.name.startswith(mine)]


def minutes_and_seconds(word: str) -> float:
    """Seconds of a time as the shell writes it: 0m0.21s."""
    minutes, _, seconds = word.rstrip("s").partition("m")
    return 60 * float(minutes) + float(seconds)


def cgroup_names(node_dir: Path) -> str:
    from corral.agent.supervisor.shim_spec import group_prefix

    return group_prefix(node_dir, "n1")


def test_inside_an_engine_nothing_is_made_and_nothing_is_warned_of() -> None:
    assert containment.probe(containment.ENGINE).kind == containment.ENGINE
    inside = containment.create(
        containment.ENGINE, name="any", mark="A=b", limits=LIMITS
    )
    assert (inside.kind, list(inside.warnings)) == (containment.ENGINE, [])
    assert containment.recorded(inside.record).record == inside.record


def test_a_limit_of_a_group_around_is_the_limit(tmp_path: Path) -> None:
    """As in Slurm, which limits the job and not the task."""
    inner = tmp_path / "job" / "task"
    inner.mkdir(parents=True)
    (inner / "memory.max").write_text("max\n")
    (inner / "memory.events").write_text("oom 1\noom_kill 1\n")
    (inner / "memory.peak").write_text("90\n")
    group = cgroup.Cgroup(version=2, folders=[inner])
    assert group.memory() is None
    (tmp_path / "job" / "memory.max").write_text("100\n")
    assert group.memory() == MemoryEvents(oom_kills=1, peak_bytes=90, limit_bytes=100)


@pytest.mark.parametrize(("tightest", "limit"), [(100, 100), (2**63 - 4096, None)])
def test_version_1_tells_of_a_group_around_and_of_no_limit(
    tmp_path: Path, tightest: int, limit: int | None
) -> None:
    (tmp_path / "memory.limit_in_bytes").write_text(f"{2**63 - 4096}\n")
    (tmp_path / "memory.stat").write_text(
        f"cache 1\nhierarchical_memory_limit {tightest}\n"
    )
    (tmp_path / "memory.max_usage_in_bytes").write_text("90\n")
    (tmp_path / "memory.oom_control").write_text("under_oom 0\noom_kill 1\n")
    assert cgroup.Cgroup(version=1, folders=[tmp_path]).memory() == MemoryEvents(
        oom_kills=1, peak_bytes=90, limit_bytes=limit
    )
