"""Where `run.log` goes, and how a run goes on in the next attempt. The trackers are
fakes with the interface of wandb, mlflow and torch.utils.tensorboard."""

import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from corral import train
from corral.train.tracking.attempt_runs import (
    continue_mlflow_run,
    hide_lost_steps,
    record_mlflow_run,
)
from corral.train.tracking.event_file import PREFIX, hide_from_step
from corral.train.tracking.trackers import (
    LONGEST_SEARCH_PAUSE,
    MLFLOW,
    TENSORBOARD,
    WANDB,
    Trackers,
)

pytestmark = pytest.mark.train

# written by TensorBoard's own RecordWriter: the version of the format, then the start
# of a session at step 300
OF_TENSORBOARD = bytes.fromhex(
    "1b000000000000001a0d9e1309000000000000f83f10ac021a0d627261696e2e4576656e743a320a8d"
    "c5e4100000000000000095fbfe1809000000000000f83f10ac023a020801713b788a"
)
Points = list[tuple[int, dict[str, float]]]


class FakeWriter:
    """As SummaryWriter in torch.utils.tensorboard."""

    def __init__(self) -> None:
        self.points: Points = []
        self.flushed = 0
        self.all_writers: dict[str, object] | None = {}

    def add_scalar(self, name: str, value: float, step: int) -> None:
        self.points.append((step, {name: value}))

    def flush(self) -> None:
        self.flushed += 1


@dataclass
class Fakes:
    """What the three packages were given. They are imported, but nothing has begun."""

    wandb: SimpleNamespace = field(default_factory=lambda: SimpleNamespace(run=None))
    of_wandb: Points = field(default_factory=list)
    of_mlflow: Points = field(default_factory=list)
    mlflow_run: SimpleNamespace | None = None
    flushed: int = 0

    # of its own for each test: writers of other tests are not found
    writer_type: type[FakeWriter] = FakeWriter

    def begin(self) -> FakeWriter:
        log = lambda values, step: self.of_wandb.append((step, values))  # noqa: E731
        self.wandb.run = SimpleNamespace(log=log)
        self.mlflow_run = SimpleNamespace(info=SimpleNamespace(run_id="run-1"))
        return self.writer_type()

    def log_metrics(
        self, values: dict[str, float], *, step: int, synchronous: bool
    ) -> None:
        assert not synchronous, "a request for each point would stop the training"
        self.of_mlflow.append((step, values))

    def flush(self) -> None:
        self.flushed += 1


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch) -> Fakes:
    made = Fakes(writer_type=type("SummaryWriter", (FakeWriter,), {}))
    mlflow = SimpleNamespace(
        active_run=lambda: made.mlflow_run,
        log_metrics=made.log_metrics,
        flush_async_logging=made.flush,
    )
    monkeypatch.setitem(sys.modules, WANDB, made.wandb)
    monkeypatch.setitem(sys.modules, MLFLOW, mlflow)
    tensorboard = SimpleNamespace(SummaryWriter=made.writer_type)
    monkeypatch.setitem(sys.modules, TENSORBOARD, tensorboard)
    return made


def test_each_tracker_that_has_begun_gets_each_point_of_the_loop(fakes: Fakes) -> None:
    writer = fakes.begin()
    run = train.start()
    run.resume(model=torch.nn.Linear(1, 1))
    for step in run.steps(until=3):
        run.log(loss=torch.tensor(float(step)), rate=0.5)
    run.log(score=9)
    expected = [(step, {"loss": float(step), "rate": 0.5}) for step in range(3)]
    assert fakes.of_wandb == [*expected, (3, {"score": 9.0})]
    assert fakes.of_mlflow == fakes.of_wandb
    assert len(writer.points) == 7
    assert writer.points[0] == (0, {"loss": 0.0})
    assert writer.flushed > 0
    assert fakes.flushed > 0, "else mlflow loses the last points at the exit"


def test_a_tracker_that_is_imported_only_or_not_at_all_gets_nothing(
    fakes: Fakes, monkeypatch: pytest.MonkeyPatch
) -> None:
    trackers = Trackers(is_used=True)
    trackers.record(1, {"loss": 1.0})
    trackers.flush()
    fakes.begin()
    trackers.record(2, {"loss": 2.0})
    trackers.flush()
    assert fakes.of_wandb == fakes.of_mlflow == [(2, {"loss": 2.0})]
    for name in (WANDB, MLFLOW, TENSORBOARD):
        monkeypatch.delitem(sys.modules, name)
    trackers.record(3, {"loss": 3.0})
    trackers.flush()
    assert len(fakes.of_wandb) == len(fakes.of_mlflow) == 1
    assert WANDB not in sys.modules, "never imported by corral"


def test_only_one_rank_records_points(fakes: Fakes) -> None:
    fakes.begin()
    other_rank = Trackers(is_used=False)
    other_rank.record(1, {"loss": 1.0})
    other_rank.push()
    other_rank.flush()
    assert not fakes.of_wandb


def test_a_value_is_that_of_its_step_although_the_program_changes_it(
    fakes: Fakes,
) -> None:
    fakes.begin()
    trackers, total = Trackers(is_used=True), torch.zeros(1)
    for step in range(3):
        total += 1
        trackers.record(step, {"total": total})
    trackers.push()
    assert [values["total"] for _, values in fakes.of_wandb] == [1.0, 2.0, 3.0]


def test_a_tracker_that_fails_is_dropped_and_the_others_go_on(
    fakes: Fakes, capsys: pytest.CaptureFixture[str]
) -> None:
    writer = fakes.begin()
    calls: list[int] = []

    def fail(values: object, step: int) -> None:
        calls.append(step)
        raise ConnectionError("the server is away")

    fakes.wandb.run.log = fail
    trackers = Trackers(is_used=True)
    for step in range(3):
        trackers.record(step, {"loss": 1.0})
        trackers.push()
    assert calls == [0]
    assert len(writer.points) == 3
    out = capsys.readouterr()
    assert (out.out + out.err).count("the server is away") == 1


def test_a_writer_that_begins_late_is_found_and_a_closed_one_is_left_alone(
    fakes: Fakes,
) -> None:
    first, trackers, later = fakes.begin(), Trackers(is_used=True), []
    for step in range(4 * LONGEST_SEARCH_PAUSE):
        if step == 3:
            first.all_writers = None  # as SummaryWriter.close() leaves it
            later.append(fakes.writer_type())
        trackers.record(step, {"loss": 1.0})
        trackers.push()
    assert len(first.points) == 3
    assert len(later[0].points) > LONGEST_SEARCH_PAUSE


def test_the_mark_is_what_tensorboard_itself_writes(tmp_path: Path) -> None:
    for name in ("train", "eval/fold", "empty"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("train", "eval/fold"):
        (tmp_path / name / f"{PREFIX}0000000000.n1.7.0").write_bytes(b"")
    assert hide_from_step(tmp_path, 300, now=1.5, name="attempt-2") == 2
    marks = sorted(tmp_path.rglob("*attempt-2"))
    assert [mark.parent.name for mark in marks] == ["fold", "train"]
    for mark in marks:
        assert mark.read_bytes() == OF_TENSORBOARD
        assert mark.name > f"{PREFIX}0000000000.n1", "read after what it hides"


def test_a_run_that_resumes_hides_the_steps_that_were_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "tensorboard"
    folder.mkdir()
    (folder / f"{PREFIX}0000000000.n1.7.0").write_bytes(b"")
    monkeypatch.setenv("CORRAL_TENSORBOARD_DIR", str(folder))
    run = train.start(checkpoint=str(tmp_path / "saves"))
    run.resume(model=torch.nn.Linear(1, 1))
    assert len(list(folder.glob("*corral*"))) == 1


def test_without_a_folder_of_tensorboard_nothing_is_written(tmp_path: Path) -> None:
    hide_lost_steps({}, 3)
    hide_lost_steps({"CORRAL_TENSORBOARD_DIR": str(tmp_path / "missing")}, 3)
    assert not list(tmp_path.iterdir())


def test_the_next_attempt_continues_the_run_of_mlflow(tmp_path: Path) -> None:
    first = {"CORRAL_TRACKING_DIR": str(tmp_path / "tracking")}
    continue_mlflow_run(first, 0)
    assert "MLFLOW_RUN_ID" not in first, "there is no run yet"
    record_mlflow_run(first, "run-1")
    second = {"CORRAL_TRACKING_DIR": str(tmp_path / "tracking")}
    of_rank_1, chosen = dict(second), {**second, "MLFLOW_RUN_ID": "mine"}
    continue_mlflow_run(second, 0)
    continue_mlflow_run(of_rank_1, 1)
    continue_mlflow_run(chosen, 0)
    assert second["MLFLOW_RUN_ID"] == "run-1"
    assert "MLFLOW_RUN_ID" not in of_rank_1
    assert chosen["MLFLOW_RUN_ID"] == "mine"
