"""Ranks that are forked from a warm interpreter: as equal to executed ones as a program
can see."""

import json
import os
import pwd
import re
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from corral.agent.processes import LocalProcess, children, lives
from corral.agent.shim.file_names import PID_FILE
from corral.agent.shim.warm_standby import STANDBY_NAME, WARM_NAME
from corral.agent.supervisor import warm_standbys
from corral.domain.desired_state import Launch
from corral.domain.ids import AttemptNumber, JobId
from corral.domain.node_policy import NodePolicy
from corral.domain.observed_state import AttemptKey, Phase, Seen
from tests.agent.nodes import Node, launch_of, left_of, node, stop_of, write_policy
from tests.agent.test_watching import OPTIMIZER

# the first attempt stays after its steps; the next one does what its argument says
TRAIN = """
import os, signal, sys
from torch.optim.optimizer import Optimizer
import installed
def make_steps():
    optimizer = Optimizer()
    for _ in range(4):
        optimizer.step()
    print("stepped", flush=True)
if os.environ["CORRAL_ATTEMPT"] == "1":
    make_steps()
    while True:
        signal.pause()
exec(open(sys.argv[1]).read())
"""
INSTALLED = """
import os
imported_by = os.getpid()
"""
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root changes accounts")
J3 = (JobId("j3"), AttemptNumber(1))
IS_FORKED = "print('forked', installed.imported_by != os.getpid())\n"
DUMP = """
import atexit, faulthandler, gc, json, locale, random, resource, threading, warnings
print('forked', installed.imported_by != os.getpid())
status = dict(
    line.split(":", 1) for line in open("/proc/self/status").read().splitlines()
)
same = ("Umask", "Uid", "Gid", "Groups", "SigBlk", "SigIgn", "SigCgt", "CapEff",
        "NoNewPrivs", "Seccomp", "Threads")
main = sys.modules["__main__"]
def number_of_files():
    return {name: os.readlink("/proc/self/fd/" + name).partition(":")[0]
            for name in ("0", "1", "2")}
state = {
    "argv": sys.argv, "orig_argv": sys.orig_argv, "path": sys.path,
    "executable": sys.executable, "flags": str(sys.flags), "warn": sys.warnoptions,
    "main": {name: str(value)[:60].split(" at 0x")[0] for name, value in
             vars(main).items() if name.startswith("__")},
    "environ": dict(os.environ), "cwd": os.getcwd(), "nice": os.nice(0),
    "session": os.getsid(0) == os.getpid(), "group": os.getpgid(0) == os.getpid(),
    "status": {name: status[name].strip() for name in same},
    "limits": [resource.getrlimit(number) for number in range(16)],
    "signals": {int(number): str(signal.getsignal(number))[:30]
                for number in signal.valid_signals()},
    "cmdline": open("/proc/self/cmdline").read(), "comm": open("/proc/self/comm").read(),
    "cgroup": open("/proc/self/cgroup").read().replace(".next", ""),
    "oom": open("/proc/self/oom_score_adj").read(), "files": number_of_files(),
    "open": sorted(os.listdir("/proc/self/fd")),
    "stdio": [(stream.name, stream.mode, stream.encoding, stream.errors,
               stream.line_buffering, stream.write_through, stream.isatty())
              for stream in (sys.stdin, sys.stdout, sys.stderr)],
    "threads": [thread.name for thread in threading.enumerate()],
    "daemon": threading.main_thread() is threading.current_thread(),
    "faulthandler": faulthandler.is_enabled(), "locale": locale.setlocale(0),
    "hooks": [str(hook)[:60].split(" at 0x")[0] for hook in sys.meta_path],
    "gc": (gc.isenabled(), gc.get_threshold()), "filters": str(warnings.filters),
    "depth": len(__import__("inspect").stack()),
    "parent": open(f"/proc/{os.getppid()}/comm").read(),
    "counter": sys.modules["sitecustomize"].counter.pid == os.getpid(),
    "death": __import__("ctypes").CDLL(None).prctl,
}
number = __import__("ctypes").c_int()
state["death"](2, __import__("ctypes").byref(number))
state["death"] = number.value
json.dump(state, open("dump.json", "w"))
"""


@pytest.fixture
def packages(node_dir: Path) -> Path:
    """A folder of installed packages, with a PyTorch that can only count."""
    folder = node_dir / "lib" / "site-packages"
    for name, text in {
        "torch/__init__.py": "",
        "torch/optim/__init__.py": "",
        "torch/optim/optimizer.py": OPTIMIZER,
        "installed.py": INSTALLED,
    }.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    (node_dir / "train.py").write_text(TRAIN)
    node_dir.chmod(0o755)
    return folder


def launch_here(
    here: Node, packages: Path, attempt: int = 1, **changes: object
) -> Launch:
    launch = launch_of(
        f"{sys.executable} {here.dir}/train.py {here.dir}/then.py",
        attempt=attempt,
        watch=True,
        env=(("PYTHONPATH", str(packages)),),
    )
    return replace(launch, **changes)  # type: ignore[arg-type]


async def end_first(here: Node, packages: Path, **changes: object) -> AttemptKey:
    """Run the first attempt until an interpreter is warm, and kill it."""
    key = await here.launch(launch_here(here, packages, 1, **changes))
    await here.until(lambda: warm_shims(here) != [], "a warm interpreter")
    here.supervisor.stop(stop_of(key, 0.0))
    await here.ended(key)
    return key


def standbys_of(here: Node) -> list[int]:
    """The shims that wait for an attempt, with or without a warm interpreter."""
    launcher = here.supervisor.launcher_pid
    assert launcher is not None
    names = (STANDBY_NAME, WARM_NAME)
    return [pid for pid in children(launcher) if name_of(pid) in names]


def prepared_shims(here: Node) -> list[int]:
    """The shims whose interpreter has imported all, or has ended."""
    return [
        pid
        for pid in standbys_of(here)
        if name_of(pid) == WARM_NAME or not any(map(lives, children(pid)))
    ]


def warm_shims(here: Node) -> list[int]:
    """The shims that wait with a warm interpreter."""
    launcher = here.supervisor.launcher_pid
    assert launcher is not None
    return [pid for pid in children(launcher) if name_of(pid) == WARM_NAME]


def name_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/comm").read_bytes().strip()
    except OSError:
        return b""


async def run_second(
    here: Node, packages: Path, then: str, **changes: object
) -> tuple[Seen, str]:
    """Run the second attempt of a job, which does `then`. Return how it ended, and its
    log."""
    (here.dir / "then.py").write_text(then)
    key = await here.launch(launch_here(here, packages, 2, **changes))
    seen = await here.ended(key)
    return seen, here.log(key)


async def test_a_forked_rank_sees_what_an_executed_one_sees(
    node_dir: Path, packages: Path
) -> None:
    dumps = []
    async with node(node_dir) as here:
        await end_first(here, packages)
        for name, is_warm in (("j1", True), ("j2", False)):
            key = (JobId(name), AttemptNumber(2))
            seen, log = await run_second(here, packages, DUMP, key=key, job_name="j1")
            assert f"forked {is_warm}" in log
            assert seen.exits[0][1].code == 0
            text = (here.work(key) / "dump.json").read_text()
            # a random folder may have the letters of the job in its name
            dump = json.loads(re.sub(rf"\b{name}\b", "j1", text))
            for variable in ("SLURM_JOB_ID", "SLURM_JOBID"):  # of another job
                assert dump["environ"].pop(variable)
            dumps.append(dump)
    forked, executed = dumps
    assert set(forked) == set(executed)
    for name in forked:
        assert forked[name] == executed[name], name


@pytest.mark.parametrize("kind", ["pid-namespace", "subreaper"])
async def test_ranks_are_forked_in_weaker_containments_too(
    node_dir: Path, packages: Path, kind: str
) -> None:
    async with node(node_dir, kind) as here:
        await end_first(here, packages)
        seen, log = await run_second(here, packages, IS_FORKED + "sys.exit(3)")
        assert "forked True" in log
        assert [end.code for _, end in seen.exits] == [3]
        await here.until(lambda: left_of(node_dir) == [], "the end of all")


@pytest.mark.root
@as_root
async def test_ranks_with_an_account_and_a_view_of_their_own_are_forked_in_them(
    node_dir: Path, packages: Path
) -> None:
    then = IS_FORKED + "print('account', os.getuid(), os.getpid() < 100)\n"
    run = f"python3 {node_dir}/train.py {node_dir}/then.py"
    changes = {"owner": "nobody", "run": run}
    path = (("PATH", "/usr/bin:/bin"), ("PYTHONPATH", str(packages)))
    async with node(node_dir) as here:
        write_policy(node_dir, NodePolicy(tmp="shared"))
        await end_first(here, packages, env=path, **changes)
        seen, log = await run_second(here, packages, then, env=path, **changes)
        assert "forked True" in log
        assert f"account {pwd.getpwnam('nobody').pw_uid} True" in log
        assert [end.code for _, end in seen.exits] == [0]


@pytest.mark.parametrize(
    ("then", "code", "number"),
    [
        ("sys.exit(7)", 7, None),
        ("raise ValueError('a mistake of the program')", 1, None),
        ("os.kill(os.getpid(), signal.SIGSEGV)", None, signal.SIGSEGV),
        ("import atexit; atexit.register(print, 'at the end')", 0, None),
        ("raise KeyboardInterrupt", None, signal.SIGINT),
    ],
)
async def test_a_forked_rank_ends_as_an_executed_one(
    node_dir: Path, packages: Path, then: str, code: int | None, number: int | None
) -> None:
    logs = []
    async with node(node_dir) as here:
        await end_first(here, packages)
        for name, is_warm in (("j1", True), ("j2", False)):
            key = (JobId(name), AttemptNumber(2))
            seen, log = await run_second(here, packages, IS_FORKED + then, key=key)
            assert f"forked {is_warm}" in log
            ((_, end),) = seen.exits
            assert (end.code, end.signal) == (code, number), log
            logs.append(log.replace(str(is_warm), "").replace("j2", "j1"))
    assert logs[0] == logs[1]


@pytest.mark.parametrize(
    ("changes", "own_file", "reason"),
    [
        ({"env": (("OMP_NUM_THREADS", "3"),)}, "", "OMP_NUM_THREADS has changed"),
        ({}, "installed.py", "has its own installed.py"),
        ({}, "lib/site-packages/new.py", "packages have changed"),
    ],
)
async def test_a_rank_that_cannot_be_forked_is_executed_and_its_log_says_why(
    node_dir: Path,
    packages: Path,
    changes: dict[str, Any],
    own_file: str,
    reason: str,
) -> None:
    async with node(node_dir) as here:
        await end_first(here, packages)
        if own_file:
            (node_dir / own_file).write_text(INSTALLED)
        if "env" in changes:
            changes = {"env": (*changes["env"], ("PYTHONPATH", str(packages)))}
        seen, log = await run_second(here, packages, IS_FORKED, **changes)
    assert "forked False" in log
    assert log.count(reason) == 1
    assert [end.code for _, end in seen.exits] == [0]


@pytest.mark.parametrize("text", ["thread", "ends"])
async def test_modules_that_start_threads_or_end_python_are_no_obstacle_to_the_rank(
    node_dir: Path, packages: Path, text: str
) -> None:
    """The interpreter says so, or goes on without the module."""
    more = {
        "thread": "import threading, time\n"
        "threading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n",
        "ends": "import os\nif 'CORRAL_WARM_START' in os.environ: raise SystemExit(3)\n",
    }[text]
    (packages / "installed.py").write_text(more + INSTALLED)
    async with node(node_dir) as here:
        key = await here.launch(launch_here(here, packages))
        await here.until(lambda: prepared_shims(here) != [], "a standby")
        here.supervisor.stop(stop_of(key, 0.0))
        await here.ended(key)
        seen, log = await run_second(here, packages, IS_FORKED)
    assert "forked False" in log
    assert [end.code for _, end in seen.exits] == [0]


async def test_the_interpreter_ends_with_a_job_that_is_done(
    node_dir: Path, packages: Path
) -> None:
    async with node(node_dir) as here:
        await end_first(here, packages)
        # the second attempt makes steps too
        seen, _ = await run_second(here, packages, "make_steps()")
        assert [end.code for _, end in seen.exits] == [0]
        await here.until(lambda: not standbys_of(here), "the end of the interpreter")
        await here.until(lambda: left_of(node_dir) == [], "the end of all")


async def test_the_interpreter_ends_when_no_next_attempt_comes(
    node_dir: Path, packages: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warm_standbys, "LINGER_SECONDS", 0.1)
    async with node(node_dir) as here:
        key = await end_first(here, packages)
        await here.until(lambda: left_of(node_dir) == [], "the end of all")
        await here.until(lambda: not standbys_of(here), "the end of the shim")
        folder = here.work(key).parent.with_name("j1.2")
        await here.until(lambda: not folder.exists(), "the removal of its folder")


async def test_nothing_is_left_of_the_interpreter_without_its_agent_or_its_shim(
    node_dir: Path, packages: Path
) -> None:
    async with node(node_dir) as here:
        key = await here.launch(launch_here(here, packages))
        await here.until(lambda: warm_shims(here) != [], "a warm interpreter")
        (shim,) = warm_shims(here)
        (interpreter,) = children(shim)
        os.kill(shim, signal.SIGKILL)
        await here.until(lambda: not lives(interpreter), "the end of the interpreter")
        here.supervisor.stop(stop_of(key, 0.0))
        await here.ended(key)
        # the next attempt runs without it
        seen, log = await run_second(here, packages, IS_FORKED)
        assert "forked False" in log
        key = await here.launch(launch_here(here, packages, 1, key=J3))
        await here.until(lambda: warm_shims(here) != [], "a warm interpreter")
    async with node(node_dir) as here:
        await here.until(lambda: not warm_shims(here), "the end without the agent")
        assert here.seen(key).phase == Phase.UP


async def test_a_forked_rank_is_stopped_and_killed_as_any_other(
    node_dir: Path, packages: Path
) -> None:
    then = IS_FORKED + "sys.stdout.flush()\nwhile True: signal.pause()"
    async with node(node_dir) as here:
        await end_first(here, packages)
        (here.dir / "then.py").write_text(then)
        key = await here.launch(launch_here(here, packages, 2))
        await here.says(key, "forked True")
        here.supervisor.stop(stop_of(key, 30.0))
        seen = await here.ended(key)
        assert [end.signal for _, end in seen.exits] == [signal.SIGTERM]
        key = await here.launch(launch_here(here, packages, 3))
        await here.says(key, "forked False")
        shim = LocalProcess.recorded(here.work(key).parent / PID_FILE)
        assert shim is not None
        shim.signal(signal.SIGKILL)
        await here.ended(key)
        assert left_of(node_dir) == []
