"""Step time of Megatron-LM's functional tests: small models that are limited by the
host.

The tests run in deterministic mode and log after each step; a single node of GB200
waits for its data. Constants: catalog/data/software.csv, megatron-tests; error:
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
    """A test run with its layout. `steps`: the parts of one training step, computed one
    after another (encoder, decoder). The last is the decoder's."""

    steps: tuple[TrainStep, ...]
    layout: TrainLayout

    def rates(self, row: Row, remarks: list[str]) -> dict[str, float]:
        """Return the predicted seconds of a step, and the tokens per second and GPU of
        its last part. The result is empty if the catalog does not know the GPU, or the
        batch does not divide evenly."""
        batch = first_batch(row, self.steps[-1].global_batch)
        try:
            gpu_device = device(row["gpu"])
            seconds = self._seconds(row, gpu_device, batch)
        except (NotFound, ValueError) as wrong:
            remarks.append(f"no step time: {wrong}")
            return {}
        if batch != self.steps[-1].global_batch:
            remarks.append(
                f"a batch of {batch}, the first and the last one of the test"
            )
        tokens = batch * self.steps[-1].sequence
        return {
            "pred_step_time_s": seconds,
            "pred_tokens_per_s_per_gpu": tokens / seconds / self.layout.gpus,
        }

    def _seconds(self, row: Row, used: Device, batch: int) -> float:
        wires = Wires(
            scale_up=used.scale_up, domain_gpus=used.domain_gpus, fabric=used.fabric
        )
        train_software = library_of(row)
        step_seconds = [
            step_time(
                replace(train_step, global_batch=batch),
                self.layout,
                used,
                wires,
                by=replace(
                    train_software, step=0.0 if step_index else train_software.step
                ),
            ).seconds
            for step_index, train_step in enumerate(self.steps)
        ]
        return sum(step_seconds)


def library_of(row: Row) -> Software:
    """Return the performance constants of the test's software. Release tests and
    explicitly nondeterministic tests need not reproduce each bit, so they may use any
    attention kernel."""
    train_software = software(TESTS)
    if "nondeterministic" in row["test"] or "release" in row["test"]:
        plain = software()
        train_software = replace(
            train_software,
            attention=plain.attention,
            attention_flops=plain.attention_flops,
        )
    if row["gpu"] == "GB200" and row["n_gpus"] == "4":
        train_software = replace(train_software, loader=software(LONE).loader)
    return train_software


def first_batch(row: Row, last: int) -> int:
    """Return the first batch of a batch that grows, as in 0:384 200B:768: the tests end
    long before the second. `last` is returned for a constant batch."""
    batch_text = row["global_batch"].split(" ")[0].removeprefix("0:")
    return int(batch_text) if batch_text.isdigit() and int(batch_text) else last
