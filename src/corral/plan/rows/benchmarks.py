"""MLPerf Inference: the data and limits of its benchmarks, and how submitters lay out a
model."""

from dataclasses import dataclass, replace
from typing import Final

from corral.perf.replicas import most_sequences
from corral.perf.serving import BatchLimits, Load, Served, capacity, served
from corral.plan.rows.row import Row, RowRefused
from corral.plan.rows.servers import BenchmarkServer

ROUNDS: Final = 8  # of halving a rate: to half a percent of the most
SEQUENCES: Final = 1024  # in flight in one replica at the most, as submissions set it
# of what a server can do: beyond it, queues of seconds answer to any burst
MOST: Final = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """A benchmark: the mean numbers of input and output tokens of its data, and the
    latency limits for 99 % of requests, 0 where there is no limit."""

    prompt: int
    output: int
    ttft_seconds: float = 0.0
    itl_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLayout:
    """A server with its layout and batch limits. `rate`: the requests per second of one
    replica when it is always full."""

    server: BenchmarkServer
    limits: BatchLimits
    rate: float


# Mean lengths of the data and limits of server and interactive: mlcommons/inference,
# README of language/{llama2-70b,llama3.1-405b,llama3.1-8b,mixtral-8x7b,deepseek-r1};
# v4.1 to v5.1.
_DATA: Final = {
    "llama-2-70b": (294, 294, {"server": (2.0, 0.2), "interactive": (0.45, 0.04)}),
    "llama-3.1-405b": (9428, 684, {"server": (6.0, 0.175), "interactive": (4.5, 0.08)}),
    "llama-3.1-8b": (778, 128, {"server": (2.0, 0.1), "interactive": (0.5, 0.03)}),
    "mixtral-8x7b": (300, 145, {"server": (2.0, 0.2), "interactive": (2.0, 0.2)}),
    "deepseek-r1": (800, 3657, {"server": (2.0, 0.08), "interactive": (1.5, 0.015)}),
}


def said_benchmark(row: Row) -> Benchmark | None:
    """Return the MLPerf benchmark that a row names; None if its scenario is not MLPerf.

    Raises: RowRefused if the model is not one of MLPerf Inference that is known here.
    """
    scenario_words = row["scenario"].lower().split()
    if not scenario_words or scenario_words[0] != "mlperf":
        return None
    plain = "".join(letter for letter in row["model"].lower() if letter.isalnum())
    for name, (prompt, output, limits) in _DATA.items():
        if plain.startswith("".join(letter for letter in name if letter.isalnum())):
            ttft, itl = limits.get(scenario_words[-1], (0.0, 0.0))
            return Benchmark(
                prompt=prompt, output=output, ttft_seconds=ttft, itl_seconds=itl
            )
    raise RowRefused(
        f"{row['model']} is not a known model of MLPerf Inference, so its results "
        "cannot be predicted"
    )


def best_replica(server: BenchmarkServer, load: Load) -> ServerLayout | None:
    """Return the layout with the highest throughput, over different numbers of GPUs per
    replica; None if no layout fits."""
    best_layout: ServerLayout | None = None
    tensor = 1
    while tensor <= server.gpus and tensor <= server.replica.model.kv_heads:
        replica = replace(server.replica, tensor=tensor)
        batch_limit = most_sequences(replica, round(load.prompt + load.output))
        if server.gpus % tensor == 0 and batch_limit:
            limits = BatchLimits(sequences=min(batch_limit, SEQUENCES))
            rate = capacity(replica, load, limits)
            copies = server.gpus // tensor
            if (
                best_layout is None
                or rate * copies > best_layout.rate * best_layout.server.copies
            ):
                laid = replace(server, replica=replica, copies=copies)
                best_layout = ServerLayout(server=laid, limits=limits, rate=rate)
        tensor *= 2
    return best_layout


def most_within(
    layout: ServerLayout, load: Load, benchmark: Benchmark
) -> Served | None:
    """Return the performance of one replica at the highest request rate at which 99 %
    of the requests keep the latency limits; None if no rate does."""
    lower_rate, upper_rate, best_load = 0.0, MOST * layout.rate, None
    for _ in range(ROUNDS):
        rate = (lower_rate + upper_rate) / 2
        served_load = served(
            layout.server.replica, replace(load, rate=rate), layout.limits
        )
        if (
            served_load.itl <= benchmark.itl_seconds
            and served_load.ttft_quantile(0.99) <= benchmark.ttft_seconds
        ):
            lower_rate, best_load = rate, served_load
        else:
            upper_rate = rate
    return best_load
