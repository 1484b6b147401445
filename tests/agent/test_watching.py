"""Steps of programs that do not report them: counted by a file that Python imports."""

import os
import signal
import stat
from pathlib import Path
from typing import Any

import pytest

from corral.agent.shim.file_names import PID_FILE
from corral.agent.shim.state import ShimState
from corral.agent.watching.hook_file import lay_out_hook
from corral.domain.bounds import OutOfBounds
from corral.domain.job import Per
from tests.agent.nodes import Node, launch_of, node

# What the file needs of PyTorch, and a program that uses it.
OPTIMIZER = """
hooks = []
def register_optimizer_step_post_hook(hook):
    hooks.append(hook)
class Optimizer:
    def step(self):
        for hook in hooks:
            hook(self, (), {})
"""
DATALOADER = """
import time
class _BaseDataLoaderIter:
    def __next__(self):
        time.sleep(0.05)
"""
TRAIN = """
import os, sys, time
from torch.optim.optimizer import Optimizer
from torch.utils.data.dataloader import _BaseDataLoaderIter
generator, discriminator, data = Optimizer(), Optimizer(), _BaseDataLoaderIter()
for _ in range(int(sys.argv[1])):
    next(data)
    generator.step()
    discriminator.step()
"""


@pytest.fixture
def program(node_dir: Path) -> Path:
    """A folder with a program, and with a PyTorch that can only count."""
    folder = node_dir / "program"
    modules = {
        "torch/__init__.py": "",
        "torch/optim/__init__.py": "",
        "torch/optim/optimizer.py": OPTIMIZER,
        "torch/utils/__init__.py": "",
        "torch/utils/data/__init__.py": "",
        "torch/utils/data/dataloader.py": DATALOADER,
        "train.py": TRAIN,
    }
    for name, text in modules.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return folder


async def progress_of(here: Node, run: str, **more: Any) -> tuple[int, float, float]:
    """Return the steps of an attempt, and its seconds of data and of computing."""
    launch = launch_of(run, watch=True, **more)
    seen = await here.ended(await here.launch(launch))
    assert [exit.code for _, exit in seen.exits] == [0]
    progress = seen.progress
    assert progress is not None
    return progress.step, progress.data_seconds, progress.compute_seconds


async def test_the_steps_of_a_program_are_counted(
    node_dir: Path, program: Path
) -> None:
    async with node(node_dir) as here:
        step, data_seconds, compute_seconds = await progress_of(
            here, f"python3 {program}/train.py 5"
        )
    assert step == 5
    assert 0.2 <= data_seconds < 2.0
    assert compute_seconds < data_seconds


async def test_a_rank_has_made_the_steps_of_its_slowest_process(
    node_dir: Path, program: Path
) -> None:
    run = (
        f"RANK=2 LOCAL_RANK=0 python3 {program}/train.py 9 &\n"
        f"RANK=3 LOCAL_RANK=1 python3 {program}/train.py 4; wait"
    )
    async with node(node_dir) as here:
        step, _, _ = await progress_of(
            here, run, per=Per.NODE, node_rank=1, world_size=2, nodes=("a", "b")
        )
    assert step == 4


async def test_what_python_would_run_at_its_start_still_runs(
    node_dir: Path, program: Path
) -> None:
    (program / "sitecustomize.py").write_text("print('the site is set up')")
    run = (
        "python3 -c \"import sys; print([p for p in sys.path if 'attempts' in p], "
        "'torch' in sys.modules)\""
    )
    async with node(node_dir) as here:
        key = await here.launch(
            launch_of(run, watch=True, env=(("PYTHONPATH", str(program)),))
        )
        await here.ended(key)
        lines = here.log(key).splitlines()
    assert lines == ["the site is set up", "[] False"]


async def test_a_program_that_is_not_watched_has_no_file(
    node_dir: Path, program: Path
) -> None:
    async with node(node_dir) as here:
        key = await here.launch(launch_of(f"python3 {program}/train.py 2"))
        seen = await here.ended(key)
        assert seen.progress is None
        assert not list(here.work(key).parent.glob("watch"))


async def test_a_program_that_reports_itself_is_not_counted(
    node_dir: Path, program: Path
) -> None:
    folder = program / "corral" / "train"
    folder.mkdir(parents=True)
    for file in (folder.parent / "__init__.py", folder / "__init__.py"):
        file.write_text("")
    (folder / "shim_channel.py").write_text("")
    text = (program / "train.py").read_text()
    (program / "own.py").write_text("import corral.train.shim_channel\n" + text)
    async with node(node_dir) as here:
        key = await here.launch(launch_of(f"python3 {program}/own.py 3", watch=True))
        seen = await here.ended(key)
    assert seen.progress is None


async def steps_of(here: Node, program: Path, text: str) -> tuple[int, list[str]]:
    """Return the steps of a program, and the lines that it prints."""
    (program / "other.py").write_text(text)
    key = await here.launch(
        launch_of(f"python3 -W error {program}/other.py", watch=True)
    )
    seen = await here.ended(key)
    assert [exit.code for _, exit in seen.exits] == [0]
    step = 0 if seen.progress is None else seen.progress.step
    return step, here.log(key).splitlines()


SEVERAL_MODELS = """
from torch.optim.optimizer import Optimizer
models = [Optimizer() for _ in range(3)]
for optimizer in models:
    for _ in range(4):
        optimizer.step()
"""


async def test_the_steps_of_several_models_are_added(
    node_dir: Path, program: Path
) -> None:
    async with node(node_dir) as here:
        step, lines = await steps_of(here, program, SEVERAL_MODELS)
    # the first step of the next model may belong to the last step of the one before
    assert 10 <= step <= 12
    assert lines == []


@pytest.mark.parametrize(
    "before",
    [
        "import os; os.environ['RANK'] = 'first'",
        "import os; os.environ.clear()",
        "import importlib.util as u; u.find_spec('torch.optim.optimizer')",
        "import threading\n"
        'def no(self): raise RuntimeError("can\'t start new thread")\n'
        "threading.Thread.start = no",
    ],
    ids=["name", "environment", "search", "threads"],
)
async def test_a_program_may_do_what_it_likes(
    before: str, node_dir: Path, program: Path
) -> None:
    text = (
        f"{before}\nfrom torch.optim.optimizer import Optimizer\nmodel = Optimizer()\n"
    )
    async with node(node_dir) as here:
        step, lines = await steps_of(
            here, program, text + "import time\nfor _ in range(3): model.step()"
        )
    assert (step, lines) == (3, [])


def test_other_accounts_read_the_file_whatever_the_umask_is(node_dir: Path) -> None:
    previous = os.umask(0o077)  # as the agent's service has it
    try:
        folder = lay_out_hook(str(node_dir))
    finally:
        os.umask(previous)
    assert folder is not None
    (file,) = Path(folder).iterdir()
    assert [stat.S_IMODE(os.stat(path).st_mode) for path in (folder, file)] == [
        0o755,
        0o644,
    ]


def test_without_room_the_job_runs_without_the_file(node_dir: Path) -> None:
    (node_dir / "watch").write_text("a file where the folder should be")
    assert lay_out_hook(str(node_dir)) is None


AT_THE_END = """
import os, pathlib, time
from torch.optim.optimizer import Optimizer
pathlib.Path("pid").write_text(str(os.getpid()))
while not os.path.exists("go"):
    time.sleep(0.001)
optimizer = Optimizer()
for _ in range(3):
    optimizer.step()
"""


async def test_what_a_program_sends_at_its_end_is_read(
    node_dir: Path, program: Path
) -> None:
    (program / "end.py").write_text(AT_THE_END)
    async with node(node_dir) as here:
        key = await here.launch(launch_of(f"exec python3 {program}/end.py", watch=True))
        work = here.work(key)
        pid_file = work / "pid"
        await here.until(lambda: pid_file.exists() and pid_file.read_text() != "")
        shim = int((work.parent / PID_FILE).read_text().split()[0])
        stat_file = Path(f"/proc/{pid_file.read_text()}/stat")
        os.kill(shim, signal.SIGSTOP)  # it sees the steps and the end at once
        try:
            (work / "go").touch()
            await here.until(
                lambda: stat_file.read_text().rpartition(")")[2].split()[0] == "Z",
                "the end of the program",
            )
        finally:
            os.kill(shim, signal.SIGCONT)
        seen = await here.ended(key)
    assert seen.progress is not None
    assert seen.progress.step == 3


FETCHES_AHEAD = """
import threading, time
from torch.optim.optimizer import Optimizer
from torch.utils.data.dataloader import _BaseDataLoaderIter
optimizer, data = Optimizer(), _BaseDataLoaderIter()
def fetch():
    for _ in range(6): next(data)
optimizer.step()
fetching = threading.Thread(target=fetch)
fetching.start()
while fetching.is_alive():
    time.sleep(0.01)
    optimizer.step()
"""


async def test_data_that_another_thread_fetches_is_not_waited_for(
    node_dir: Path, program: Path
) -> None:
    (program / "ahead.py").write_text(FETCHES_AHEAD)
    async with node(node_dir) as here:
        step, data_seconds, _ = await progress_of(here, f"python3 {program}/ahead.py")
    assert step >= 3
    assert data_seconds == 0.0


def steps(rank: int, step: int, local_rank: int = 0) -> dict[str, Any]:
    return {
        "type": "steps",
        "rank": rank,
        "local_rank": local_rank,
        "step": step,
        "data_seconds": 0.5,
        "compute_seconds": 1.5,
    }


def test_ranks_that_count_are_told_apart() -> None:
    state = ShimState()
    state.take_steps(steps(4, 7), 1.0, range(4, 6))
    state.take_steps(steps(5, 6), 2.0, range(4, 6))
    assert state.progress is not None
    assert state.progress["ranks"] == [[4, 7, 0.5, 1.5, 0.0], [5, 6, 0.5, 1.5, 0.0]]


def test_a_process_that_starts_again_counts_from_its_beginning() -> None:
    state = ShimState()
    for step in (1, 90, 2):
        state.take_steps(steps(1, step), 1.0, [0])
    assert state.progress is not None
    assert state.progress["step"] == 2


@pytest.mark.parametrize("wrong", [{"rank": -1}, {"step": "x"}, {"local_rank": None}])
def test_steps_out_of_bounds_are_refused(wrong: dict[str, Any]) -> None:
    state = ShimState()
    with pytest.raises(OutOfBounds):
        state.take_steps(steps(0, 1) | wrong, 1.0, [0])
    assert state.progress is None
