"""The metrics of a save, and the warning about one that is never logged."""

import math
from pathlib import Path

import pytest
import torch

from corral.domain.keep_rule import BestRule, KeepRule
from corral.train.save.checkpoint_dir import Shelf
from corral.train.save.manifest import MANIFEST, decode
from corral.train.save.saver import Saved, Saver
from corral.train.step_timer import Meter
from tests.train.saves import ALONE, capture, fail, holder_at

pytestmark = pytest.mark.train
RULE = KeepRule(last=1, best=BestRule(metric="accuracy"))


def saver_of(root: Path, saved: list[Saved]) -> Saver:
    shelf = Shelf(root=root, job="j1", attempt=1)
    shelf.open()
    return Saver(
        shelf, keep=RULE, talk=ALONE, quiet=ALONE, done=saved.append, failed=fail
    )


def test_the_metrics_are_in_the_manifest_and_in_the_report(tmp_path: Path) -> None:
    saved: list[Saved] = []
    saver = saver_of(tmp_path, saved)
    metrics = (("accuracy", 0.5), ("loss", 1.25))
    saver.save(7, lambda: capture(holder_at(7), 7), metrics)
    saver.close()
    manifest = decode((saved[0].directory / MANIFEST).read_bytes())
    assert manifest.metrics == saved[0].metrics == metrics
    assert manifest.saved_at == saved[0].saved_at > 1e9


def test_a_metric_that_is_not_logged_is_named_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saver = saver_of(tmp_path, [])
    for step in (1, 2):
        saver.save(step, lambda: capture(holder_at(1), 1), (("loss", 1.0),))
    saver.close()
    said = capsys.readouterr().err
    assert said.count("run.log(accuracy=...)") == 1


def test_only_finite_metrics_are_recorded() -> None:
    meter = Meter(first_step=0, until=9, world_size=1)
    assert meter.metrics() == ()
    meter.log(loss=torch.tensor(2.0), samples=1, accuracy=math.nan, rate=3)
    assert meter.metrics() == (("loss", 2.0), ("rate", 3.0))
