"""Rows of the inference table: near what was measured; what is missing is told or
refused."""

import csv
import gzip
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from corral.catalog.devices import device
from corral.catalog.precisions import Precision
from corral.plan.parse.precisions import said_precision
from corral.plan.rows.inference import predict
from corral.plan.rows.row import RowRefused

TABLE = Path(__file__).parents[2] / "validation" / "data" / "inference.csv.gz"
STATIC = ("static batch, full request latency", "offline static batch")


def rows() -> list[Mapping[str, str]]:
    with gzip.open(TABLE, "rt") as lines:
        return list(csv.DictReader(lines))


def mean_error(some: Iterable[Mapping[str, str]], column: str) -> float:
    errors = []
    for row in some:
        if row[column]:
            values = predict(row).values
            errors.append(abs(values[f"pred_{column}"] / float(row[column]) - 1))
    assert len(errors) >= 20
    return sum(errors) / len(errors)


def is_mislabelled(row: Mapping[str, str]) -> bool:
    """The totals of 0.6.1 on several A100 are the rates of one GPU in 0.7.1."""
    many = row["gpu"].startswith("A100") and row["tp"] != "1"
    return many and row["engine"] == "TensorRT-LLM 0.6.1"


def test_static_batches_are_near_what_was_measured() -> None:
    some = [
        row
        for row in rows()
        if row["quality"] == "A"
        and row["scenario"] in STATIC
        and not is_mislabelled(row)
    ]
    assert mean_error(some, "output_tokens_per_s_total") < 0.07


def test_servers_under_load_are_near_what_was_measured() -> None:
    some = [row for row in rows() if row["scenario"].startswith("online")]
    assert mean_error(some, "ttft_ms") < 0.15
    assert mean_error(some, "tpot_ms") < 0.105
    assert mean_error(some, "latency_ms") < 0.10


def test_the_most_that_a_server_gives_is_near_what_was_measured() -> None:
    some = [row for row in rows() if row["scenario"] == "MLPerf Offline"][::3]
    assert mean_error(some, "output_tokens_per_s_total") < 0.20


def row_of(**cells: str) -> dict[str, str]:
    """A server of Llama 3.1 8B on one H100, with these cells beside it."""
    empty = dict.fromkeys(rows()[0], "")
    usual = {
        "model": "Llama 3.1 8B",
        "gpu": "H100 SXM",
        "engine": "vLLM",
        "precision": "bf16",
    }
    return {**empty, **usual, "scenario": "static batch", **cells}


def test_what_is_missing_is_told() -> None:
    told = " ".join(predict(row_of(batch_or_concurrency="8")).remarks)
    assert "prompts of 512 tokens" in told
    assert "256 output tokens" in told


def test_a_row_needs_no_more_columns_than_it_fills() -> None:
    row = {
        "model": "Llama 3.1 8B",
        "gpu": "H100 SXM",
        "scenario": "offline max throughput",
    }
    assert predict(row).values["pred_output_tokens_per_s_total"] > 1000


def test_a_rate_makes_a_queue_and_a_fixed_number_makes_a_rate() -> None:
    cells = {"input_len": "512", "output_len": "128"}
    online = predict(row_of(requests_per_s="4", scenario="online", **cells)).values
    assert online["pred_output_tokens_per_s_total"] == pytest.approx(4 * 128)
    together = predict(
        row_of(scenario="fixed concurrency", batch_or_concurrency="16", **cells)
    ).values
    rate = together["pred_output_tokens_per_s_total"] / 128
    assert rate * together["pred_latency_ms"] / 1e3 == pytest.approx(16, rel=0.02)


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ({"gpu": "H10 SXM"}, "H10"),
        ({"model": "no such model"}, "does not contain the model"),
        ({"model": "Llama 3.1 405B"}, "do not fit"),
        ({"n_gpus": "two"}, "must be a number"),
        ({"tp": "1.5"}, "whole number"),
        ({"scenario": "online"}, "no rate of requests"),
        ({"scenario": "online", "requests_per_s": "0"}, "must be above 0"),
        ({"input_len": "0", "batch_or_concurrency": "1"}, "must be at least 1"),
        ({"scenario": "online", "requests_per_s": "100000"}, "queue would only grow"),
        (
            {"scenario": "MLPerf Offline", "model": "Qwen 2.5 7B"},
            "not a known model of MLPerf",
        ),
    ],
)
def test_what_cannot_be_predicted_is_refused_with_the_reason(
    cells: dict[str, str], reason: str
) -> None:
    with pytest.raises(RowRefused, match=reason):
        predict(row_of(**cells))


def test_llama_cpp_cuts_by_layers_so_that_more_gpus_are_not_quicker() -> None:
    cells = {"engine": "llama.cpp", "scenario": "batch 1 decode", "output_len": "128"}
    one = predict(row_of(**cells)).values["pred_tpot_ms"]
    four = predict(row_of(n_gpus="4", tp="4", **cells)).values["pred_tpot_ms"]
    assert four >= one


@pytest.mark.parametrize(
    ("text", "gpu", "precision", "weight", "cache"),
    [
        ("fp16", "A100", Precision.FP16, 2.0, 2.0),
        ("Q4_K_M", "RTX 4090", Precision.FP16, 4.85 / 8, 2.0),
        ("4-bit weights", "RTX 4090", Precision.FP16, 0.5, 2.0),
        ("fp8", "H100", Precision.FP8, 1.0, 1.0),
        ("nvfp4 weights, fp8/auto KV cache", "B200", Precision.FP4, 0.5, 1.0),
        ("see submission (NVIDIA: fp8 on Hopper)", "H100", Precision.FP8, 1.0, 1.0),
        ("see submission", "A100", Precision.FP16, 2.0, 2.0),
    ],
)
def test_precisions_are_read_as_people_write_them(
    text: str, gpu: str, precision: Precision, weight: float, cache: float
) -> None:
    kept = said_precision(text, device(gpu), narrow_cache=True)
    assert (kept.precision, kept.weight_bytes, kept.kv_bytes) == (
        precision,
        weight,
        cache,
    )
