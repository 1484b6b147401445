"""Errors on sources that no constant was fitted to."""

import pytest

from corral.plan.rows.prediction_errors import Pair
from corral.plan.validation.held_out import by_kind, series_of, spread, spreads


def pair(source: str, error: float, gpu: str = "H100 SXM 80GB", **cells: str) -> Pair:
    row = {"source": source, "gpu": gpu, "quality": "A", "precision": "bf16"} | cells
    return Pair(row=row, predicted=1.0 + error, measured=1.0)


@pytest.mark.parametrize(
    ("source", "series"),
    [
        ("NVIDIA DGX Cloud benchmarking recipes (v25.02.02)",
         "NVIDIA DGX Cloud benchmarking recipes"),
        ("NVIDIA TensorRT-LLM 0.7.1 performance doc", "NVIDIA TensorRT-LLM performance doc"),
        ("MLPerf Training v5.0 results (Dell)", "MLPerf Training results"),
        ("vTrain measured data (MICRO'24), single node", "vTrain measured data"),
    ],
)  # fmt: skip
def test_versions_of_a_document_are_one_source(source: str, series: str) -> None:
    assert series_of(source) == series


def test_each_source_counts_the_same_however_many_rows_it_has() -> None:
    found = spread([*(pair("a", 0.1) for _ in range(9)), pair("b", -0.5)])
    assert found.mean == pytest.approx(0.3)
    assert found.p90 == pytest.approx(0.5)
    assert (found.rows, found.sources) == (10, 2)


def test_a_chip_has_a_line_of_its_own_from_three_rows_on() -> None:
    few = [pair("a", 0.4, gpu="A100 SXM 80GB") for _ in range(2)]
    rows = [*(pair("a", 0.1) for _ in range(3)), *few]
    names = [name for name, _ in spreads("k", rows)]
    assert names == ["k", "k.h100", "k.other"]


def test_an_unmeasured_chip_is_no_more_certain_than_the_kind() -> None:
    rows = [*(pair("a", 0.1) for _ in range(30)),
            *(pair("a", 0.5, gpu="V100 SXM2 32GB") for _ in range(3))]  # fmt: skip
    found = dict(spreads("k", rows))
    assert found["k.other"].mean == pytest.approx(0.3)
    assert found["k"].mean < found["k.other"].mean


def test_lora_is_a_kind_of_its_own() -> None:
    rows = [
        pair("a", 0.1, model="Llama 2 70B LoRA", n_gpus="8"),
        pair("a", 0.1, model="Llama 2 70B", n_gpus="64", params="70e9"),
        pair("a", 0.1, model="Mixtral 8x7B", n_gpus="64"),
        pair("a", 0.1, model="Llama 3 8B", n_gpus="64", precision="fp8"),
    ]
    found = {
        kind.name.rpartition(".")[2]: len(own) for kind, own in by_kind(rows).items()
    }
    assert found == {"nodes": 1, "one_node": 0, "narrow": 1, "experts": 1, "lora": 1}


def test_rows_that_leave_out_much_count_for_chips_without_others_only() -> None:
    rough = {"quality": "C"}
    rows = [
        *(pair("a", 0.1) for _ in range(3)),
        *(pair("a", 0.9, **rough) for _ in range(3)),
        *(pair("b", 0.3, gpu="V100 SXM2 32GB", **rough) for _ in range(3)),
    ]
    found = dict(spreads("k", rows))
    assert found["k"].mean == pytest.approx(0.1)
    assert found["k.h100"].mean == pytest.approx(0.1)
    assert found["k.v100"].mean == pytest.approx(0.3)
