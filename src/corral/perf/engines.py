"""Inference engines, described by what each adds to its kernels:
catalog/data/engines.csv."""

import re
from dataclasses import dataclass
from functools import cache
from typing import Final

from corral.catalog.facts import plain, table
from corral.domain.errors import NotFound

TELLING: Final = 4  # letters of a name that are not found in other words by chance
DEFAULT: Final = "default"  # an engine without measurements


@dataclass(frozen=True, slots=True, kw_only=True)
class InferenceEngine:
    """Constants of an inference engine; `*_seconds` are seconds.

    Args:
        layer_seconds: for each layer, in addition to its products and its attention:
            small kernels and what the host needs to launch them.
        step_seconds: for each step, independent of its batch.
        sequence_seconds: for each sequence of a step (sampling, bookkeeping).
        matmul: share of the rate of perf.matmul that its products reach.
        prompt_matmul: factor on `matmul` in steps with prompts.
        attention: share of the memory's rate at which its attention reads the cache.
        reread: how much of a cached head it reads again for each further query head
            that shares it.
        sum_seconds: for each all-reduce and each domain that it spans, in addition to
            perf.collectives.
        sums_in_one: small all-reduces use the engine's own kernel, and not NCCL.
        prompt_layer_seconds: what the host needs to launch one layer of a step with
            prompts; no such layer is faster.
        sequence_layer_seconds: for each sequence in each layer.
        processor_bytes_per_s: the most that its kernels read on one processor; 0: the
            memory's rate is the limit.
        request_seconds: for each request outside its steps: to read it, tokenize it and
            place it, and to send the first token back.
        experts_seconds: for each layer with experts, to choose them and to sort tokens
            by them.
        imbalance: tokens of the busiest expert, relative to the mean.
        passes: how often norms, residuals and unfused operations move a token's hidden
            numbers.
        vendors: makers of the GPUs that it runs on; empty means all.
    """

    name: str
    layer_seconds: float
    step_seconds: float
    sequence_seconds: float
    matmul: float
    attention: float
    sum_seconds: float = 0.0
    prompt_layer_seconds: float = 0.0
    sequence_layer_seconds: float = 0.0
    processor_bytes_per_s: float = 0.0
    reread: float = 0.0
    sums_in_one: bool = False
    request_seconds: float = 0.0
    experts_seconds: float = 0.0
    prompt_matmul: float = 1.0
    imbalance: float = 1.0
    passes: float = 8.0
    vendors: tuple[str, ...] = ()


@cache
def engine(name: str) -> InferenceEngine:
    """Return the engine of that name or version, for example "TensorRT-LLM 0.8.0" or
    vllm. Values that the table lacks are taken from the table's default, for an engine
    without measurements all of them."""
    engine_rows = table("engines")
    own_name = _match_engine(name)
    facts = {**engine_rows[DEFAULT], **engine_rows.get(own_name, {})}
    return InferenceEngine(
        name=own_name,
        layer_seconds=facts["layer"].number * 1e-6,
        step_seconds=facts["step"].number * 1e-6,
        sequence_seconds=facts["sequence"].number * 1e-6,
        matmul=facts["matmul"].number,
        attention=facts["attention"].number,
        sum_seconds=facts["sum"].number * 1e-6,
        prompt_layer_seconds=facts["prompt_layer"].number * 1e-6,
        sequence_layer_seconds=facts["sequence_layer"].number * 1e-6,
        processor_bytes_per_s=facts["processor_rate"].number * 1e9,
        experts_seconds=facts["experts"].number * 1e-6,
        passes=facts["passes"].number,
        imbalance=facts["imbalance"].number,
        prompt_matmul=facts["prompt_matmul"].number,
        request_seconds=facts["request"].number * 1e-6,
        sums_in_one=facts["sums_in_one"].value == "yes",
        reread=facts["reread"].number,
        vendors=tuple(facts["vendors"].value.split(";")) if "vendors" in facts else (),
    )


def engine_said(name: str) -> InferenceEngine:
    """Return the engine that the user names explicitly; one without measurements gets
    the default's values.

    Raises: NotFound, with the nearest name, if the name is unknown.
    """
    if plain(name) != DEFAULT and not _is_named(plain(name)):
        engine_names = [*table("engines"), *(alias for alias, _ in _engine_aliases())]
        raise NotFound(
            "inference engine", name, engine_names, see="corral plan catalog engines"
        )
    return engine(name)


def _is_named(wanted: str) -> bool:
    """Return whether the text consists only of known engine names, optionally followed
    by a version."""
    aliases = [plain(alias) for alias, _ in _engine_aliases()]
    rest = wanted
    while begins := [alias for alias in aliases if rest.startswith(alias)]:
        rest = rest.removeprefix(max(begins, key=len))
    return rest != wanted and bool(re.match(r"[v.]?\d|$", rest))


def _engine_aliases() -> list[tuple[str, str]]:
    """Return pairs (alias, engine): each name in the table, and the engine of its row."""
    return [
        (alias, own_name)
        for own_name, facts in table("engines").items()
        if "names" in facts
        for alias in facts["names"].value.split(";")
    ]


def _match_engine(name: str) -> str:
    """Return the engine for a requested text: the longest engine name with which the
    text begins, else the longest that it contains; the default without a match."""
    plain_name = plain(name)
    aliases = [(plain(alias), own_name) for alias, own_name in _engine_aliases()]
    begins = [
        (len(alias), own_name)
        for alias, own_name in aliases
        if plain_name.startswith(alias)
    ]
    inside = [
        (len(alias), own_name)
        for alias, own_name in aliases
        if len(alias) >= TELLING and alias in plain_name
    ]
    return max(begins or inside, default=(0, DEFAULT))[1]
