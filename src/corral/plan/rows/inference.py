"""Prediction for one row of the inference table: what a server achieves in the row's
scenario."""

import math
import re
from typing import Final

from corral.perf.inference import (
    decode_seconds,
    prefill_seconds,
    static_batch_seconds,
)
from corral.perf.replicas import most_sequences, weight_bytes
from corral.perf.serving import (
    BatchLimits,
    Load,
    Served,
    capacity,
    served,
    served_together,
)
from corral.plan.rows.benchmarks import (
    Benchmark,
    best_replica,
    most_within,
    said_benchmark,
)
from corral.plan.rows.row import Predicted, Row, RowRefused
from corral.plan.rows.servers import BenchmarkServer, number, server_of

COLUMNS: Final = (  # that are read
    "scenario",
    "model",
    "params",
    "layers",
    "hidden",
    "heads",
    "kv_heads",
    "ffn",
    "vocab",
    "gpu",
    "n_gpus",
    "nodes",
    "interconnect",
    "engine",
    "precision",
    "tp",
    "pp",
    "dp",
    "ep",
    "notes",
    "batch_or_concurrency",
    "input_len",
    "output_len",
    "requests_per_s",
)
DECODED: Final = 256  # tokens that a row generates where it does not say how many
PROMPTED: Final = 512  # tokens of a prompt where a row does not say how many
# sequences in flight at the most: TensorRT-LLM's max_batch_size
IN_FLIGHT: Final = 2048


def predict(row: Row) -> Predicted:
    """Return tokens per second, time to the first and between later tokens, and
    latency, as far as they apply to the row's scenario: a batch that begins and ends
    together, a server that is always full, or requests that arrive at a rate or with a
    fixed number in progress.

    Raises: RowRefused.
    """
    remarks: list[str] = []
    row = {**dict.fromkeys(COLUMNS, ""), **row}
    server = server_of(row, remarks)
    try:
        values = _predict_values(row, server, remarks)
    except ValueError as wrong:
        raise RowRefused(str(wrong)) from wrong
    return Predicted(values=values, remarks=tuple(remarks))


def _predict_values(
    row: Row, server: BenchmarkServer, remarks: list[str]
) -> dict[str, float]:
    scenario = row["scenario"].lower()
    if (benchmark := said_benchmark(row)) is not None:
        return _benchmark(server, benchmark, remarks)
    _refuse_what_does_not_fit(server)
    if "production" in scenario:
        raise RowRefused("averages over days of production do not state the load")
    if "in-flight" in scenario or "max throughput" in scenario:
        return _predict_max_throughput(row, server, remarks)
    if scenario.startswith("online") or row["requests_per_s"].strip():
        return _predict_online(row, server, remarks)
    if number(row, "batch_or_concurrency") is None:
        if not any(keyword in scenario for keyword in ("batch", "latency", "single")):
            return _predict_max_throughput(row, server, remarks)
        remarks.append("a batch of 1")
    if "concurren" in scenario or "closed" in scenario:
        return _predict_concurrent(row, server, remarks)
    return _predict_static_batch(row, server, remarks)


def _refuse_what_does_not_fit(server: BenchmarkServer) -> None:
    replica = server.replica
    need, available_gb = weight_bytes(replica) / 1e9, replica.device.memory_bytes / 1e9
    if need > available_gb:
        raise RowRefused(
            f"weights of {need:.0f} GB do not fit on a GPU of {available_gb:.0f} GB",
            hint="use more GPUs, or fewer bits per weight",
        )


def _token_lengths(row: Row, remarks: list[str]) -> tuple[int, int]:
    prompt, output = number(row, "input_len"), number(row, "output_len")
    if prompt is None:
        prompt = 1 if row["scenario"] == "batch 1 decode" else PROMPTED
        remarks.append(f"prompts of {prompt} tokens")
    if output is None:
        output = 1 if "prefill" in row["scenario"] else DECODED
        remarks.append(f"{output} output tokens")
    if min(prompt, output) < 1:
        raise RowRefused(
            f"input_len is {prompt:g} and output_len is {output:g}: both must be at least 1"
        )
    return round(prompt), round(output)


def _predict_static_batch(
    row: Row, server: BenchmarkServer, remarks: list[str]
) -> dict[str, float]:
    prompt, output = _token_lengths(row, remarks)
    replica, copies = server.replica, server.copies
    batch = max(1, round((number(row, "batch_or_concurrency") or 1) / copies))
    ttft_seconds = prefill_seconds(replica, batch=batch, tokens=prompt)
    if "decode" in row["scenario"]:
        step = decode_seconds(replica, batch=batch, context=prompt + output / 2)
        return {
            "pred_output_tokens_per_s_total": copies * batch / step,
            "pred_tpot_ms": step * 1e3,
        }
    values = {"pred_ttft_ms": ttft_seconds * 1e3}
    if output <= 1:
        return values
    seconds = static_batch_seconds(replica, batch=batch, prompt=prompt, output=output)
    return values | {
        "pred_output_tokens_per_s_total": copies * batch * output / seconds,
        "pred_tpot_ms": (seconds - ttft_seconds) / (output - 1) * 1e3,
        "pred_latency_ms": seconds * 1e3,
    }


def _predict_max_throughput(
    row: Row, server: BenchmarkServer, remarks: list[str]
) -> dict[str, float]:
    """Predict a server that always has enough requests for the largest batch that
    memory allows."""
    prompt, output = _token_lengths(row, remarks)
    replica = server.replica
    max_sequences = most_sequences(replica, prompt + output)
    if max_sequences < 1:
        raise RowRefused(
            f"no sequence of {prompt + output} tokens fits in memory next to the weights",
            hint="use more GPUs, or fewer bits per number",
        )
    limits = BatchLimits(sequences=min(max_sequences, IN_FLIGHT * replica.data))
    remarks.append(
        f"{limits.sequences} sequences in flight, the maximum that memory allows"
    )
    rate = capacity(replica, Load(rate=1.0, prompt=prompt, output=output), limits)
    return {"pred_output_tokens_per_s_total": server.copies * rate * output}


def _read_batch_limits(
    row: Row, server: BenchmarkServer, prompt: int, output: int
) -> BatchLimits:
    """Return the batch limits that the row's notes state in the engine's own terms, or
    the engine's defaults. The limit of sequences is at most the number that fits into
    memory."""
    notes = row["notes"]
    batch_limits = BatchLimits()
    sequences = _match_number(r"max_num_seqs=(\d+)", notes) or batch_limits.sequences
    tokens = (
        _match_number(r"max_num_batched_tokens=(\d+)", notes) or batch_limits.tokens
    )
    batch_limit = max(1, most_sequences(server.replica, prompt + output // 2))
    return BatchLimits(
        sequences=round(min(sequences, batch_limit)), tokens=round(tokens)
    )


def _match_number(pattern: str, text: str) -> float | None:
    match = re.search(pattern, text)
    return float(match[1]) if match else None


def _request_rates(row: Row) -> list[float]:
    """Return the requests per second: the rate of the row, or one rate for each load
    stage in its notes."""
    if (rate := number(row, "requests_per_s")) is not None:
        if rate <= 0:
            raise RowRefused(f"requests_per_s is {rate:g}: it must be above 0")
        return [rate]
    if match := re.search(r"offered rates ([\d./]+) req/s", row["notes"]):
        return [float(rate_text) for rate_text in match[1].split("/") if rate_text]
    raise RowRefused(
        "the row gives no rate of requests", hint="fill the column requests_per_s"
    )


def _predict_online(
    row: Row, server: BenchmarkServer, remarks: list[str]
) -> dict[str, float]:
    prompt, output = _token_lengths(row, remarks)
    shared_tokens = min(
        _match_number(r"shared system prompt of (\d+)", row["notes"]) or 0.0,
        prompt - 1.0,
    )
    limits = _read_batch_limits(row, server, prompt, output)
    stages = [
        served(
            server.replica,
            Load(
                rate=rate / server.copies,
                prompt=prompt,
                output=output,
                shared=shared_tokens,
            ),
            limits,
        )
        for rate in _request_rates(row)
    ]
    if any(math.isinf(stage.ttft) for stage in stages):
        busy = max(stage.busy for stage in stages)
        raise RowRefused(
            f"the load is {busy:.1f} times the maximum of the server: its queue would only grow"
        )
    return _of_stages(stages, server.copies)


def _of_stages(stages: list[Served], copies: int) -> dict[str, float]:
    """Return the predicted columns: means over several load stages of equal duration,
    weighted by their requests."""
    total = sum(stage.load.rate for stage in stages)

    def mean(values: list[float]) -> float:
        weighed = zip(stages, values, strict=True)
        return (
            sum(served_load.load.rate * value for served_load, value in weighed) / total
        )

    return {
        "pred_output_tokens_per_s_total": copies
        * mean([stage.output_rate for stage in stages]),
        "pred_ttft_ms": mean([stage.ttft for stage in stages]) * 1e3,
        "pred_tpot_ms": mean([stage.itl for stage in stages]) * 1e3,
        "pred_latency_ms": mean([stage.latency for stage in stages]) * 1e3,
    }


def _predict_concurrent(
    row: Row, server: BenchmarkServer, remarks: list[str]
) -> dict[str, float]:
    prompt, output = _token_lengths(row, remarks)
    concurrency = max(
        1, round((number(row, "batch_or_concurrency") or 1) / server.copies)
    )
    load = Load(rate=0.0, prompt=prompt, output=output)
    limits = _read_batch_limits(row, server, prompt, output)
    return _of_stages(
        [served_together(server.replica, load, concurrency, limits)], server.copies
    )


def _benchmark(
    server: BenchmarkServer, benchmark: Benchmark, remarks: list[str]
) -> dict[str, float]:
    load = Load(rate=1.0, prompt=benchmark.prompt, output=benchmark.output)
    remarks.append(
        f"{benchmark.prompt} tokens in and {benchmark.output} out: the benchmark's data"
    )
    server_layout = best_replica(server, load)
    if server_layout is None:
        raise RowRefused("the weights do not fit on the GPUs", hint="use more GPUs")
    remarks.append(
        f"{server_layout.server.copies} copies on {server_layout.server.replica.gpus} GPUs each"
    )
    if not benchmark.ttft_seconds:
        total = server_layout.server.copies * server_layout.rate * benchmark.output
        return {"pred_output_tokens_per_s_total": total}
    served_load = most_within(server_layout, load, benchmark)
    if served_load is None:
        raise RowRefused(
            "no rate of requests meets the latency limits of the benchmark"
        )
    return {
        "pred_output_tokens_per_s_total": server_layout.server.copies
        * served_load.output_rate,
        "pred_ttft_ms": served_load.ttft_quantile(0.99) * 1e3,
        "pred_tpot_ms": served_load.itl * 1e3,
    }
