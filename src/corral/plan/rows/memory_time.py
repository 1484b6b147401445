"""Step time of Megatron-LM's functional tests: small models that wait for the host.

They run in deterministic mode and log after each step; a lone node of GB200 waits for
its data. Constants: catalog/data/software.csv, megatron-tests; error:
validation/README.md.
"""

from dataclasses import dataclass, replace
from typing import Final

from corral.catalog.devices import Device, device
from corral.domain.errors import NotFound
from corral.perf.layout import TrainLayout, TrainStep
from corral.perf.software import Software, software
from corral.perf.topology import Wires
from corral.perf.train_step_time import step_time
from corral.plan.rows.row import Row

TESTS: Final = "megatron-tests"
LONE: Final = "megatron-tests-lone"


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedRun:
    """`steps`: what is computed one after another in one step; the decoder's is the
    last."""

    steps: tuple[TrainStep, ...]
    layout: TrainLayout

    def rates(self, row: Row, remarks: list[str]) -> dict[str, float]:
        """Seconds of a step, and tokens that go through its last part; nothing where
        the catalog does not know the GPU, or the batch does not come out even."""
        batch = first_batch(row, self.steps[-1].global_batch)
        try:
            used = device(row["gpu"])
            seconds = self._seconds(row, used, batch)
        except (NotFound, ValueError) as wrong:
            remarks.append(f"no step time: {wrong}")
            return {}
        if batch != self.steps[-1].global_batch:
            remarks.append(f"a batch of {batch}, with which the test begins and ends")
        tokens = batch * self.steps[-1].sequence
        return {
            "pred_step_time_s": seconds,
            "pred_tokens_per_s_per_gpu": tokens / seconds / self.layout.gpus,
        }

    def _seconds(self, row: Row, used: Device, batch: int) -> float:
        wires = Wires(
            scale_up=used.scale_up, domain_gpus=used.domain_gpus, fabric=used.fabric
        )
        by = library_of(row)
        parts = [
            step_time(
                replace(train_step, global_batch=batch),
                self.layout,
                used,
                wires,
                by=replace(by, step=0.0 if place else by.step),
            ).seconds
            for place, train_step in enumerate(self.steps)
        ]
        return sum(parts)


def library_of(row: Row) -> Software:
    """Tests of releases, and those that say so, need not repeat each bit: any attention
    kernel."""
    by = software(TESTS)
    if "nondeterministic" in row["test"] or "release" in row["test"]:
        plain = software()
        by = replace(
            by, attention=plain.attention, attention_flops=plain.attention_flops
        )
    if row["gpu"] == "GB200" and row["n_gpus"] == "4":
        by = replace(by, loader=software(LONE).loader)
    return by


def first_batch(row: Row, last: int) -> int:
    """Return the first of growing batches, as in 0:384 200B:768: the tests end long
    before the second."""
    word = row["global_batch"].split(" ")[0].removeprefix("0:")
    return int(word) if word.isdigit() and int(word) else last
