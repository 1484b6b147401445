"""Memory of rows of the training table: the measure that each names, and what its
library keeps."""

import csv
import gzip
from collections.abc import Mapping
from pathlib import Path

import pytest

from corral.plan.rows.training import predict

TABLE = Path(__file__).parents[2] / "validation" / "data" / "training.csv.gz"


def rows(*, source: str) -> list[Mapping[str, str]]:
    with gzip.open(TABLE, "rt") as lines:
        return [
            row
            for row in csv.DictReader(lines)
            if row["memory_gb_per_gpu"] and source in row["source"]
        ]


def off(row: Mapping[str, str]) -> float:
    predicted = predict(row).values["pred_memory_gb_per_gpu"]
    return predicted / float(row["memory_gb_per_gpu"]) - 1


@pytest.mark.parametrize(
    ("source", "count", "bound"),
    [
        ("Megatron-LM CI 7B", 6, 0.05),  # the allocator's peak of the last rank
        ("Llama-3.1-8B ZeRO-2", 2, 0.05),  # reserved, with eager kernels
        # reserved, half of the products kept
        ("torchtitan benchmark (Trainy", 2, 0.15),
        ("Korthikanti et al. 2205.05198 Figure 1", 8, 0.10),  # the paper's own formula
        ("BigScience BLOOM-176B", 53, 0.20),  # whole GB of the whole device, noisy
    ],
)
def test_memory_is_near_what_was_measured(
    source: str, count: int, bound: float
) -> None:
    errors = [
        abs(off(row)) for row in rows(source=source) if row["layers"] and row["heads"]
    ]
    assert len(errors) >= count
    assert sum(errors) / len(errors) < bound


def test_a_recipe_that_adds_up_has_all_before_its_own() -> None:
    ladder = rows(source="torchtune README optimisation")
    errors = {row["notes"].partition(" (")[0]: off(row) for row in ladder}
    assert abs(errors["+ compile"]) < 0.05
    assert abs(errors["+ activation checkpointing"]) < 0.10
    assert abs(errors["LoRA"]) < 0.10


def test_the_whole_device_takes_more_than_what_is_reserved_and_that_more_than_the_peak() -> (
    None
):
    row = rows(source="Llama-3.1-8B ZeRO-2")[0]
    peak, reserved, device = (
        predict({**row, "memory_kind": kind}).values["pred_memory_gb_per_gpu"]
        for kind in (
            "torch max_memory_allocated",
            "torch max_memory_reserved",
            "nvidia-smi",
        )
    )
    assert peak < reserved < device
