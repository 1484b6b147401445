"""Rows of the training table are read as they are written, and predicted not far
off."""

import csv
import gzip
from pathlib import Path

import pytest

from corral.catalog.precisions import Precision
from corral.perf.layout import Recompute, Shard
from corral.plan.rows.measures import MEASURES, SLICES
from corral.plan.rows.prediction_errors import errors_of, hold
from corral.plan.rows.row import Row, RowRefused
from corral.plan.rows.training import library, predict, read

TABLE = Path(__file__).parents[2] / "validation" / "data" / "training.csv.gz"
LLAMA = {
    "model": "Llama 3.1 70b BF16",
    "params": "70553706496",
    "layers": "80",
    "hidden": "8192",
    "heads": "64",
    "kv_heads": "8",
    "ffn": "28672",
    "vocab": "128256",
    "seq_len": "8192",
    "global_batch": "128",
    "micro_batch": "1",
    "gpu": "H100 SXM 80GB",
    "n_gpus": "64",
    "nodes": "8",
    "interconnect": "NVLink4 NVL8 + CX7 400 Gb/s InfiniBand per GPU",
    "tp": "4",
    "pp": "4",
    "cp": "2",
    "vp": "5",
    "fsdp_zero_stage": "DDP + distributed optimizer (ZeRO-1)",
    "activation_checkpointing": "none",
    "precision": "bf16",
}


def test_a_row_is_read() -> None:
    run = read(LLAMA)
    assert (run.layout.data, run.layout.tensor, run.layout.pipeline) == (2, 4, 4)
    assert run.layout.shard is Shard.OPTIMIZER
    assert run.step.model.is_gated
    assert not run.step.model.is_tied
    assert run.wires.fabric.name == "ib-ndr"
    assert run.by.name == "megatron-core"


def test_a_run_of_llama_70b_takes_what_it_took() -> None:
    # NVIDIA DGX Cloud recipes v25.04.02: 14.66 s a step, 1,117.6 tokens/s and GPU.
    values = predict(LLAMA).values
    assert values["pred_step_time_s"] == pytest.approx(14.66, rel=0.05)
    assert values["pred_tokens_per_s_per_gpu"] == pytest.approx(1117.6, rel=0.05)


def test_what_is_not_said_is_told() -> None:
    told = read(LLAMA | {"vp": "", "micro_batch": "", "vocab": ""}).remarks
    assert len(told) == 4  # and sequence parallelism


def test_what_does_not_fit_is_recomputed_where_nobody_says() -> None:
    heavy = LLAMA | {
        "activation_checkpointing": "",
        "tp": "1",
        "cp": "1",
        "micro_batch": "4",
    }
    heavy |= {"fsdp_zero_stage": "FSDP", "pp": "1"}
    assert read(heavy).layout.recompute is Recompute.FULL
    assert (
        read(heavy | {"activation_checkpointing": "none"}).layout.recompute
        is Recompute.NONE
    )


@pytest.mark.parametrize(
    "missing",
    [("layers", "model", "params"), ("seq_len", "model", "params", "layers"), ("gpu",)],
)
def test_a_row_that_says_too_little_is_refused(missing: tuple[str, ...]) -> None:
    with pytest.raises(RowRefused):
        predict(LLAMA | dict.fromkeys(missing, ""))


def test_a_log_that_tells_the_tokens_of_a_step_has_a_batch() -> None:
    log = LLAMA | {
        "global_batch": "",
        "notes": "tokens per step 1,048,576 (without padding)",
    }
    assert read(log).batch == 1_048_576 / 8_192
    assert predict(log).values == predict(LLAMA).values


def test_what_mlperf_does_not_say_is_as_submissions_have_it() -> None:
    silent = LLAMA | {"source": "MLPerf Training v5.0 results (Dell)"}
    silent |= {"precision": "not stated in log", "fsdp_zero_stage": ""}
    run = read(silent)
    assert (run.step.precision, run.layout.shard) == (Precision.FP8, Shard.OPTIMIZER)
    assert {"matrix products in fp8", "the optimizer is sharded (ZeRO-1)"} < set(
        run.remarks
    )
    old = read(silent | {"gpu": "A100 SXM 80GB"})
    assert old.step.precision is Precision.BF16
    assert read(silent | {"source": "our own"}).step.precision is Precision.BF16


def test_a_pipeline_of_which_no_batch_is_said_is_kept_full() -> None:
    run = read(LLAMA | {"global_batch": ""})
    assert run.step.micro_batches(run.layout) == 8 * 4
    flat = read(LLAMA | {"global_batch": "", "pp": "1"})
    assert flat.step.micro_batches(flat.layout) == 1


def test_a_library_is_known_by_its_own_name_before_what_it_uses() -> None:
    bridge = {
        "source": "NVIDIA Megatron Bridge performance summary",
        "fsdp_zero_stage": "FSDP",
    }
    assert library(bridge) == "megatron-core"
    assert library({"fsdp_zero_stage": "FSDP"}) == "pytorch"


def test_what_is_kept_in_the_hosts_memory_is_refused() -> None:
    with pytest.raises(RowRefused, match="to the host's memory"):
        predict(LLAMA | {"notes": "HF + Deepspeed Zero 3 + Full Offload"})


def test_rows_are_not_predicted_by_what_was_measured() -> None:
    measured = {
        "step_time_s": "1",
        "tokens_per_s_per_gpu": "1",
        "tflops_per_gpu": "1",
        "mfu": "1",
    }
    assert predict(LLAMA | measured) == predict(LLAMA)


@pytest.mark.parametrize(
    ("name", "most"),
    [("training.step_time.nodes", 0.066), ("training.step_time.one_node", 0.08)],
)
def test_errors_stay_where_they_are(name: str, most: float) -> None:
    (part,) = (one for one in SLICES if one.name == name)
    with gzip.open(TABLE, "rt", encoding="utf-8") as file:
        rows: list[Row] = [row for row in csv.DictReader(file) if part.holds(row)]
    outcome = hold(rows, predict, MEASURES["training"])
    errors = errors_of(outcome.pairs["step time"])
    assert errors is not None
    assert errors.rows > 240
    assert errors.mean < most


TPU = LLAMA | {
    "source": "MaxText",
    "gpu": "TPU v6e",
    "n_gpus": "1024",
    "nodes": "256",
    "interconnect": "",
    "global_batch": "2048",
    "micro_batch": "",
    "tp": "",
    "pp": "",
    "cp": "",
    "vp": "",
    "fsdp_zero_stage": "",
    "activation_checkpointing": "",
}


def test_tpus_of_several_slices_share_out_a_model_within_each() -> None:
    run = read(TPU)
    assert run.by.name == "maxtext"
    assert run.wires.domain_gpus == 256  # a slice, and not a host of four
    assert run.layout.replicas == 4
    assert run.layout.micro_batch == 2
    assert read(TPU | {"n_gpus": "256", "nodes": "64"}).layout.replicas == 1
    assert read(TPU | {"fsdp_zero_stage": "FSDP"}).layout.replicas == 1
