"""Memory and step time of one row of the memory_ci table. A row is a functional test of
Megatron-LM with its command line flags."""

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from math import gcd
from typing import Final

from corral.catalog.devices import device
from corral.catalog.models import Experts, Latent, Model
from corral.catalog.precisions import Precision
from corral.domain.errors import NotFound
from corral.perf.layout import (
    BytesPerParameter,
    Recompute,
    Shard,
    TrainLayout,
    TrainStep,
)
from corral.perf.memory import TrainMemory, training_memory
from corral.plan.rows.memory_t5 import DECODED, ENCODED, t5_memory, t5_steps
from corral.plan.rows.memory_time import TimedRun
from corral.plan.rows.row import Predicted, Row, RowRefused

UNSAID_GPUS: Final = 8  # where a row names no number of GPUs
# Nodes of a test of a release. With half as many, the 15B model on H100 would do 800
# TFLOPS a GPU.
RELEASE_NODES: Final = 16
RELEASE_GPT_NODES: Final = 32
FAMILIES: Final = ("gpt", "moe", "bert", "mixtral", "t5")
VOCABULARIES: Final = {"GPTSentencePieceTokenizer": 256_000, "Llama2Tokenizer": 32_000}
GPT2_VOCAB: Final = 50_257
BERT_VOCAB: Final = 28_996  # bert-large-cased, that its tests of BERT and T5 read
DEEPSEEK: Final = Latent(kv_rank=512, query_rank=1536, rope_dim=64, value_dim=128)
DEEPSEEK_HEAD: Final = 128
MUON: Final = BytesPerParameter(optimizer=8.0)  # fp32 master weight and one moment


def predict(row: Row) -> Predicted:
    """Return the peak of torch's allocator on the last rank and the memory kept between
    two steps, in decimal GB, and the seconds of a step if the catalog knows the GPU.

    Raises: RowRefused.
    """
    known_row = defaultdict(str, row)
    if known_row["family"] not in FAMILIES:
        raise RowRefused(
            f"{known_row['family'] or 'unnamed'} models have parts that the row does not describe",
            hint=f"use rows of the families {', '.join(FAMILIES)}",
        )
    remarks: list[str] = []
    try:
        memory, run = (
            _predict_t5(known_row, remarks)
            if known_row["family"] == "t5"
            else _predict_decoder(known_row, remarks)
        )
        rates = run.rates(known_row, remarks)
    except (ValueError, ArithmeticError) as wrong:
        # a size of 0, or one that nothing can have
        raise RowRefused(str(wrong)) from wrong
    values = {
        "pred_memory_gb_per_gpu": memory.allocated_peak / 1e9,
        "pred_memory_steady_gb_per_gpu": memory.allocated_steady / 1e9,
    }
    return Predicted(values=values | rates, remarks=tuple(remarks))


def _predict_decoder(row: Row, remarks: list[str]) -> tuple[TrainMemory, TimedRun]:
    layout = layout_of(row, remarks)
    step = step_of(row, remarks)
    memory = memory_of_training(step, layout, gpu=row["gpu"], stage=layout.pipeline - 1)
    return memory, TimedRun(steps=(step,), layout=layout)


def _predict_t5(row: Row, remarks: list[str]) -> tuple[TrainMemory, TimedRun]:
    flags = flags_of(row)
    halves = [flags.get(f"{half}-num-layers", "") for half in ("encoder", "decoder")]
    if not all(half.isdigit() for half in halves):
        raise RowRefused("the row does not give the layers of encoder and decoder")
    encoder, decoder = map(int, halves)
    remarks.append(f"{ENCODED} tokens encoded and {DECODED} decoded")
    known_row = defaultdict(
        str, row, layers=str(encoder + decoder), seq_len=str(DECODED)
    )
    step, layout = step_of(known_row, remarks), layout_of(known_row, remarks)
    model = replace(step.model, positions=ENCODED, has_bias=True)
    full_step = replace(step, model=model)
    memory = t5_memory(
        model, decoder, full_step, layout, architecture=architecture(row["gpu"])
    )
    return memory, TimedRun(steps=t5_steps(encoder, decoder, full_step), layout=layout)


def memory_of_training(
    step: TrainStep, layout: TrainLayout, *, gpu: str = "", stage: int | None = None
) -> TrainMemory:
    """Return the memory of a GPU in this pipeline stage, or in the fullest stage.

    Raises: RowRefused if the layout is impossible.
    """
    try:
        return training_memory(
            step, layout, stage=stage, architecture=architecture(gpu)
        )
    except ValueError as wrong:
        raise RowRefused(str(wrong)) from wrong


def architecture(gpu: str) -> str:
    """Return the architecture of a GPU by its name in tables; "" if the catalog does
    not have it."""
    try:
        return device(gpu).architecture
    except NotFound:
        return ""


def flags_of(row: Row) -> dict[str, str]:
    """Return the flags of a row's command line, by name."""
    flags: dict[str, str] = {}
    for flag in row["args"].split("--"):
        name, _, value = flag.strip().partition(" ")
        flags[name] = value.strip()
    return flags


def flag_number(flags: Mapping[str, str], name: str) -> int:
    """Return the whole number of a flag; 0 if it is missing.

    Raises: RowRefused if the value is not a whole number.
    """
    flag_text = flags.get(name, "0")
    if not flag_text.isdigit():
        raise RowRefused(
            f"--{name} is {flag_text or 'empty'}: it must be a whole number"
        )
    return int(flag_text)


def number(row: Row, name: str, default: int | None = None) -> int:
    """Return a cell's whole number, or the default if the cell is empty.

    Raises: RowRefused if the cell is not a number, or is empty without a default.
    """
    cell = row[name].strip()
    try:
        return int(float(cell)) if cell or default is None else default
    except (ValueError, OverflowError):
        raise RowRefused(
            f"{name} is {cell or 'not given'}: it must be a whole number"
        ) from None


def model_of(row: Row, remarks: list[str]) -> Model:
    flags = flags_of(row)
    hidden, heads = number(row, "hidden"), number(row, "heads")
    ffn = number(row, "ffn", 4 * hidden)
    latent = DEEPSEEK if "multi-latent-attention" in flags else None
    if latent:
        remarks.append("the ranks and widths of DeepSeek-V3's latent attention")
    rotates = (
        "rope" in row["test"] or latent or row["family"] not in ("gpt", "moe", "bert")
    )
    return Model(
        name=row["test"],
        layers=number(row, "layers"),
        hidden=hidden,
        heads=heads,
        kv_heads=number(row, "kv_heads", heads),
        head_dim=DEEPSEEK_HEAD if latent else hidden // heads,
        ffn=ffn,
        vocab=BERT_VOCAB
        if row["family"] in ("bert", "t5")
        else vocabulary(row["vocab_note"], remarks),
        is_gated=row["gated_mlp"] == "True",
        is_tied=row["untied_embeddings"] != "True",
        has_bias=not latent and "disable-bias-linear" not in flags,
        positions=0 if rotates else number(row, "seq_len"),
        latent=latent,
        experts=_parse_experts(row, flags, ffn),
    )


def _parse_experts(row: Row, flags: Mapping[str, str], ffn: int) -> Experts | None:
    if not row["num_experts"]:
        return None
    own_ffn = number(row, "moe_ffn", ffn)
    shared_ffn = flag_number(flags, "moe-shared-expert-intermediate-size")
    dense = re.match(r"\(\[0\]\*(\d+)", flags.get("moe-layer-freq", ""))
    return Experts(
        count=number(row, "num_experts"),
        per_token=number(row, "topk", 2),
        ffn=own_ffn,
        shared=round(shared_ffn / own_ffn),
        dense_layers=int(dense[1]) if dense else 0,
    )


def vocabulary(note: str, remarks: list[str]) -> int:
    note_words = note.replace(",", "").split()
    for note_word in note_words:
        if note_word.isdigit() and int(note_word) > 1000:
            return int(note_word)
        if note_word in VOCABULARIES:
            return VOCABULARIES[note_word]
    remarks.append(f"a vocabulary of {GPT2_VOCAB} tokens (GPT-2)")
    return GPT2_VOCAB


def step_of(row: Row, remarks: list[str]) -> TrainStep:
    flags, sequence = flags_of(row), number(row, "seq_len")
    if sequence < 1:
        raise RowRefused(f"seq_len is {sequence}: it must be at least 1")
    return TrainStep(
        model=model_of(row, remarks),
        sequence=sequence,
        global_batch=batch_of(row),
        precision=Precision.FP8 if "fp8" in row["precision"] else Precision.BF16,
        has_flash=flags.get("attention-backend") != "unfused" and not is_local(row),
        dropout=flags.get("attention-dropout") != "0.0",
        state=MUON if flags.get("optimizer") == "muon" else BytesPerParameter(),
        grouped_experts="moe-grouped-gemm" in flags,
        ahead=flag_number(flags, "mtp-num-layers"),
    )


def is_local(row: Row) -> bool:
    """Return whether the test runs Megatron-LM's own layers, without a flash kernel.
    Tests without te in their name do."""
    return (
        row["test"].startswith(("gpt3_mcore_tp", "t5_mcore_tp"))
        and "_te_" not in row["test"]
    )


def batch_of(row: Row) -> int:
    """Return the last global batch of a row. A batch that grows during the run is
    written 0:384 200B:768."""
    batch_words = row["global_batch"].replace(":", " ").split()
    batches = [int(batch_text) for batch_text in batch_words if batch_text.isdigit()]
    if not batches:
        raise RowRefused(
            f"global_batch is {row['global_batch'] or 'not given'}: it must be a whole "
            "number"
        )
    return batches[-1]


def layout_of(row: Row, remarks: list[str]) -> TrainLayout:
    pipeline = number(row, "pp", 1)
    data = number(row, "dp", 0)
    if not data:
        gpus = number(row, "n_gpus", 0) or _unsaid_gpus(row)
        model_parallel = number(row, "tp", 1) * pipeline * number(row, "cp", 1)
        micro_batches = batch_of(row) // number(row, "micro_batch")
        data = gcd(max(gpus // model_parallel, 1), micro_batches)
        remarks.append(f"{data} data-parallel GPUs, of {gpus} GPUs")
    flags = flags_of(row)
    layers, (first_stage_layers, last_stage_layers, interleave) = (
        number(row, "layers"),
        _parse_pipeline_split(flags, pipeline),
    )
    pieces = number(row, "vp_layers", 0) * pipeline
    return TrainLayout(
        data=data,
        tensor=number(row, "tp", 1),
        pipeline=pipeline,
        context=number(row, "cp", 1),
        expert=number(row, "ep", 1),
        expert_tensor=number(row, "etp", number(row, "tp", 1)),
        interleave=max(layers // pieces, 1)
        if pieces
        else max(interleave, _named_pieces(row)),
        micro_batch=number(row, "micro_batch"),
        shard=_parse_sharding(row),
        sequence_parallel=row["sequence_parallel"] == "True",
        recompute=_recompute(flags),
        first_layers=first_stage_layers,
        last_layers=last_stage_layers,
        replicas=gcd(
            data, max(flag_number(flags, "num-distributed-optimizer-instances"), 1)
        ),
    )


def _unsaid_gpus(row: Row) -> int:
    if "release" not in row["test"]:
        return UNSAID_GPUS
    nodes = RELEASE_GPT_NODES if row["family"] == "gpt" else RELEASE_NODES
    try:
        return nodes * device(row["gpu"]).node_gpus
    except NotFound:
        return nodes * UNSAID_GPUS


def _named_pieces(row: Row) -> int:
    """Return the number of pipeline pieces per stage that a test's name states (vp2:
    2), for tests whose flags do not; else 1."""
    match = re.search(r"_vp(\d+)_account_for_embedding", row["test"])
    return int(match[1]) if match else 1


def _parse_pipeline_split(
    flags: Mapping[str, str], pipeline: int
) -> tuple[int, int, int]:
    """Return three numbers from the flags: layers of the first stage, layers of the
    last stage, and pieces per stage. A number of layers is 0 where the stage has as
    many as the others. A pipeline's layout is written Et*2|(tt|)*5t|tmL: t is a layer,
    and | ends a piece."""
    written = flags.get("pipeline-model-parallel-layout", "")
    if not written:
        first_layers = flag_number(flags, "decoder-first-pipeline-num-layers")
        return first_layers, flag_number(flags, "decoder-last-pipeline-num-layers"), 1
    plain = re.sub(r"\(([^)]*)\)\*(\d+)", lambda many: many[1] * int(many[2]), written)
    plain = re.sub(r"(\w)\*(\d+)", lambda many: many[1] * int(many[2]), plain)
    layers = [piece.count("t") for piece in plain.split("|")]
    own_layers = [sum(layers[stage::pipeline]) for stage in range(pipeline)]
    return own_layers[0], own_layers[-1], len(layers) // pipeline


def _parse_sharding(row: Row) -> Shard:
    """Return which training states are sharded. Muon's optimizer states are whole on
    each GPU, unless the test lays out its parameters for sharding."""
    if flags_of(row).get("optimizer") == "muon" and "param_layout" not in row["test"]:
        return Shard.NONE
    if row["fsdp"]:
        return Shard.PARAMETERS
    return Shard.OPTIMIZER if row["dist_optimizer"] == "True" else Shard.NONE


def _recompute(flags: Mapping[str, str]) -> Recompute:
    return Recompute(flags.get("recompute-granularity", "none"))
