"""What a save holds, and that it comes back whole into any form of the same model."""

import random
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.distributed.checkpoint.state_dict_loader import load as load_plainly
from torch.utils._pytree import tree_map

from corral.domain.keep_rule import KeepRule
from corral.train.data.sampler import Sampler
from corral.train.process_group import ProcessGroup
from corral.train.save.checkpoint_dir import Shelf
from corral.train.save.restore import DoesNotFit, RestoreCandidate, load
from corral.train.save.saver import Saver
from corral.train.save.staging import Later
from corral.train.save.storage import SaveReader
from corral.train.save.training_state import StateHolder, WorldChanged
from tests.patience import PATIENCE_SECONDS
from tests.train.saves import ALONE, fail, saver_at

pytestmark = pytest.mark.train


class Tied(nn.Module):
    """Every awkward thing at once: tied, half precision, frozen, unused, empty, extra
    state."""

    count: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(6, 6)
        self.b = nn.Linear(6, 6)
        self.b.weight = self.a.weight
        self.unused = nn.Parameter(torch.ones(3))
        self.frozen = nn.Parameter(torch.ones(3), requires_grad=False)
        self.short = nn.Parameter(torch.ones(4, dtype=torch.bfloat16))
        self.register_buffer("empty", torch.zeros(0, 4))
        self.register_buffer("count", torch.tensor(0))
        self.note = "new"

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count.add_(1)
        total: torch.Tensor = self.b(self.a(x)).sum() + self.short.float().sum()
        return total

    def get_extra_state(self) -> dict[str, str]:
        return {"note": self.note}

    def set_extra_state(self, state: Any) -> None:
        self.note = state["note"]


def holder(seed: int = 1, **changes: Any) -> StateHolder:
    torch.manual_seed(seed)
    model = Tied()
    groups: list[dict[str, Any]] = [
        {"params": [model.a.weight, model.short]},
        {"params": [model.a.bias], "lr": 0.5},
    ]
    optimizers = (
        torch.optim.AdamW(groups),
        torch.optim.SGD([model.b.bias, model.unused], lr=0.1, momentum=0.9),
    )
    settings: dict[str, Any] = {
        "scheduler": torch.optim.lr_scheduler.StepLR(optimizers[0], 1, 0.5),
        "data": Sampler(100, 4, rank=0, world_size=1),
        "others": {"scaler": torch.amp.GradScaler("cpu")},
    }
    return StateHolder(model=model, optimizers=optimizers, **(settings | changes))


def one_step(found: StateHolder) -> None:
    found.model(torch.ones(2, 6)).backward()
    for optimizer in found.optimizers:
        optimizer.step()
        optimizer.zero_grad()
    found.scheduler.step()  # type: ignore[union-attr]
    next(iter(found.data))  # type: ignore[call-overload]


def save(found: StateHolder, root: Path, step: int = 1) -> RestoreCandidate:
    shelf = Shelf(root=root, job="", attempt=1)
    shelf.open()
    saver, saved = saver_at(shelf)
    saver.save(step, lambda: found.capture(step=step, observed_seconds=12.0))
    saver.close()
    return RestoreCandidate(
        attempt=1, step=step, path=saved[0].path, manifest_sha256=None
    )


def same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return bool(a == b)


def clone(one: Any) -> Any:
    return one.clone() if isinstance(one, torch.Tensor) else one


def whole(found: StateHolder) -> list[Any]:
    parts = [
        found.model,
        *found.optimizers,
        found.scheduler,
        found.data,
        *found.others.values(),
    ]
    return [part.state_dict() for part in parts if part is not None]


def test_everything_comes_back_bit_for_bit(tmp_path: Path) -> None:
    old = holder()
    old.model.note = "changed"  # type: ignore[assignment]
    for _ in range(3):
        one_step(old)
    found = save(old, tmp_path)
    new = holder(seed=2)
    common = load(found, new)
    assert (common["step"], common["observed_seconds"]) == (1, 12.0)
    assert new.model.note == "changed"
    assert same(whole(old), whole(new))
    for one in (old, new):
        one_step(one)
    assert same(whole(old), whole(new))


def test_a_parameter_that_had_no_gradient_gets_no_optimizer_state(
    tmp_path: Path,
) -> None:
    old = holder()
    one_step(old)
    new = holder(seed=2)
    load(save(old, tmp_path), new)
    assert isinstance(new.model, Tied)
    assert new.model.unused not in new.optimizers[1].state


def test_the_random_generators_go_on_where_they_were(tmp_path: Path) -> None:
    def draw() -> tuple[float, float, float]:
        return random.uniform(0, 1), float(np.random.rand()), float(torch.rand(()))

    found = save(holder(), tmp_path)
    expected = draw()
    new = holder(seed=9)
    assert draw() != expected
    load(found, new)
    assert draw() == expected


def test_saving_draws_no_random_number_and_changes_no_state(tmp_path: Path) -> None:
    old = holder()
    one_step(old)
    before = (whole(old), torch.get_rng_state(), random.getstate())
    before_copy = tree_map(clone, before)
    save(old, tmp_path)
    assert same((whole(old), torch.get_rng_state(), random.getstate()), before_copy)


def test_another_model_is_refused_and_named(tmp_path: Path) -> None:
    found = save(holder(), tmp_path)
    other = StateHolder(model=nn.Linear(3, 3))
    with pytest.raises(DoesNotFit, match="does not fit this model"):
        load(found, other)
    assert found.directory.exists()


def test_a_position_that_cannot_be_shared_out_anew_is_refused(tmp_path: Path) -> None:
    class Position:
        def state_dict(self) -> int:
            return 7

        def load_state_dict(self, state: int) -> None:
            raise AssertionError("must not be reached")

    found = save(holder(data=Position()), tmp_path)
    with pytest.raises(WorldChanged):
        load(found, holder(data=Position(), world_size=2))


def test_plain_torch_reads_a_save_with_our_reader(tmp_path: Path) -> None:
    old = holder()
    one_step(old)
    found = save(old, tmp_path)
    weight = torch.zeros(6, 6)
    with pytest.warns(UserWarning, match="single process"):
        load_plainly(
            {"model/a.weight": weight}, storage_reader=SaveReader(found.directory)
        )
    assert isinstance(old.model, Tied)
    assert torch.equal(weight, old.model.a.weight)


def test_a_state_that_changes_shape_is_planned_anew(tmp_path: Path) -> None:
    shelf = Shelf(root=tmp_path, job="", attempt=1)
    shelf.open()
    saved: list[Any] = []
    saver = Saver(
        shelf,
        keep=KeepRule(last=9),
        talk=ALONE,
        quiet=ALONE,
        done=saved.append,
        failed=fail,
    )
    found = holder()
    saver.prepare(found.capture(step=0, observed_seconds=0.0))
    one_step(found)  # now there is optimizer state
    saver.save(1, lambda: found.capture(step=1, observed_seconds=0.0))
    saver.close()
    new = holder(seed=2)
    load(
        RestoreCandidate(attempt=1, step=1, path=saved[0].path, manifest_sha256=None),
        new,
    )
    assert same(whole(found), whole(new))


def test_a_world_of_one_needs_no_group() -> None:
    gang = ProcessGroup(rank=0, world_size=1)
    assert gang.gather(3) == [3]
    assert gang.share(4) == 4
    assert gang.hand_out([5]) == 5
    assert gang.largest([1, 2]).wait() == [1, 2]


def saver_with_troubles(root: Path) -> tuple[Saver, list[Any], list[str]]:
    """A saver, the saves it has made, and why others failed."""
    shelf = Shelf(root=root, job="", attempt=1)
    shelf.open()
    troubles: list[str] = []
    saver, saved = saver_at(shelf, failed=lambda step, why: troubles.append(why))
    return saver, saved, troubles


def test_an_optimizers_next_step_waits_until_its_state_is_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, at_the_gate = threading.Event(), threading.Event()
    copy = Later.copy
    monkeypatch.setattr(
        Later, "copy", lambda one: gate.wait(PATIENCE_SECONDS) and copy(one)
    )
    found = holder()
    one_step(found)
    before = tree_map(clone, whole(found))
    saver, saved, troubles = saver_with_troubles(tmp_path)
    for optimizer in found.optimizers:
        optimizer.register_step_pre_hook(lambda *_: at_the_gate.set())
        saver.guard(optimizer)
    lost_by_saving = saver.save(1, lambda: found.capture(step=1, observed_seconds=0.0))
    stepping = threading.Thread(target=one_step, args=(found,))
    stepping.start()
    assert at_the_gate.wait(PATIENCE_SECONDS)
    stepping.join(0.2)
    assert stepping.is_alive()
    gate.set()
    stepping.join(PATIENCE_SECONDS)
    saver.close()
    assert troubles == []
    new = holder(seed=2)
    load(
        RestoreCandidate(attempt=1, step=1, path=saved[0].path, manifest_sha256=None),
        new,
    )
    assert same(whole(new), before)
    assert saved[0].stall_seconds > lost_by_saving


def test_state_changed_behind_the_optimizer_while_copied_fails_the_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = Later.copy
    found = holder()
    one_step(found)
    moment = found.optimizers[1].state[found.model.b.bias]["momentum_buffer"]  # type: ignore[union-attr,index]

    def change_and_copy(one: Later) -> str:
        moment.mul_(2)
        return copy(one)

    monkeypatch.setattr(Later, "copy", change_and_copy)
    saver, saved, troubles = saver_with_troubles(tmp_path)
    saver.save(1, lambda: found.capture(step=1, observed_seconds=0.0))
    saver.close()
    assert saved == []
    assert "b.bias/momentum_buffer was changed outside" in troubles[0]
