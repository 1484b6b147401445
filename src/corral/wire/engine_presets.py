"""Presets of inference engines: the command of a replica, its probe, and how another
replica continues its streams.

A command uses the variables of a replica: CORRAL_HOST and CORRAL_PORT, where it listens,
and CORRAL_REPLICA_KEY, which it requires of requests. The key is given by an environment
variable where the engine reads one, because all users of a node see its command lines.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from shlex import quote
from typing import Final

from corral.domain.resources import Shape
from corral.domain.service import ContinueBy
from corral.domain.units import MILLIS_PER_GPU
from corral.wire.model_source import ModelSource, SourceKind

_ADDRESS: Final = '--host "$CORRAL_HOST" --port "$CORRAL_PORT"'
# GPUs of the node, or 1 for a share of a GPU; shapes of `any_of` have different numbers
_GPUS_OF_NODE: Final = "$((${CORRAL_GPUS%.*} > 1 ? ${CORRAL_GPUS%.*} : 1))"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineArguments:
    """What the command of an engine depends on.

    Args:
        names: Names under which the model is served, at least one.
        tensor_parallel: GPUs over which the model is split, as a word of a shell
            command; "" for one GPU or none.
    """

    model: ModelSource
    names: Sequence[str]
    tensor_parallel: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnginePreset:
    """An inference engine that Corral can start.

    Args:
        command: Shell command of a replica.
        sources: Where its model may lie.
        continue_by: How another replica continues its streams.
        probe: Path that answers 200 once it is ready.
        serves_one_name: Whether it refuses requests for a second name of its model.
    """

    command: Callable[[EngineArguments], str]
    sources: frozenset[SourceKind]
    continue_by: ContinueBy = ContinueBy.NONE
    probe: str = "/health"
    serves_one_name: bool = False


def tensor_parallel_of(shapes: Sequence[Shape]) -> str:
    """Return the number of GPUs of each node, as a word of a shell command; "" if all
    shapes have one GPU or less."""
    counts = {shape.resources.gpu_millis // MILLIS_PER_GPU for shape in shapes}
    if max(counts) <= 1:
        return ""
    return str(*counts) if len(counts) == 1 else _GPUS_OF_NODE


def _words(*words: str) -> str:
    return " ".join(filter(None, words))


def _option(name: str, value: str) -> str:
    return f"{name} {value}" if value else ""


def _vllm(arguments: EngineArguments) -> str:
    model = arguments.model
    is_streamed = model.kind is SourceKind.S3
    command = _words(
        "exec vllm serve",
        model.shell_word,
        _option("--revision", quote(model.revision) if model.revision else ""),
        _option("--load-format", "runai_streamer" if is_streamed else ""),
        _ADDRESS,
        _option("--served-model-name", " ".join(map(quote, arguments.names))),
        _option("--tensor-parallel-size", arguments.tensor_parallel),
        "--enable-prompt-tokens-details",
    )
    return f'export VLLM_API_KEY="$CORRAL_REPLICA_KEY"\n{command}'


def _sglang(arguments: EngineArguments) -> str:
    model = arguments.model
    return _words(
        "exec python -m sglang.launch_server --model-path",
        model.shell_word,
        _option("--revision", quote(model.revision) if model.revision else ""),
        _ADDRESS,
        _option("--served-model-name", quote(arguments.names[0])),
        _option("--tensor-parallel-size", arguments.tensor_parallel),
        '--api-key "$CORRAL_REPLICA_KEY" --enable-metrics --enable-cache-report',
    )


def _llama_cpp(arguments: EngineArguments) -> str:
    options = _words(
        "--model",
        arguments.model.shell_word,
        _ADDRESS,
        _option("--alias", quote(arguments.names[0])),
    )
    return (
        "if command -v llama-server >/dev/null; then\n"
        '  export LLAMA_API_KEY="$CORRAL_REPLICA_KEY"\n'
        f"  exec llama-server {options} --metrics\n"
        "fi\n"
        f"exec python -m corral.serve.llama_cpp {options}"
    )


def _transformers(arguments: EngineArguments) -> str:
    """It serves a model under the path by which it was given. A link gives the path the
    name that requests use."""
    model = arguments.model
    path = f'"$(realpath {model.shell_word})"'
    if model.kind is SourceKind.HF:
        revision = f', revision="{model.revision}"' if model.revision else ""
        download = (
            "from huggingface_hub import snapshot_download; "
            f'print(snapshot_download("{model.location}"{revision}))'
        )
        path = f'"$(python -c {quote(download)})"'
    name = quote(arguments.names[0])
    return (
        "set -e\n"
        f"model={path}\n"
        "links=$(mktemp -d)\n"
        f'ln -s "$model" "$links"/{name}\n'
        'cd "$links"\n'
        f"exec transformers serve {name} {_ADDRESS}"
    )


def _tiny(arguments: EngineArguments) -> str:
    return _words(
        "exec python -m corral.serve.tiny --model",
        arguments.model.shell_word,
        _ADDRESS,
        *(f"--name {quote(name)}" for name in arguments.names),
    )


ENGINE_PRESETS: Final[Mapping[str, EnginePreset]] = {
    "vllm": EnginePreset(
        command=_vllm, sources=frozenset(SourceKind), continue_by=ContinueBy.VLLM
    ),
    "sglang": EnginePreset(command=_sglang, sources=frozenset(SourceKind)),
    "llama.cpp": EnginePreset(
        command=_llama_cpp,
        sources=frozenset({SourceKind.PATH}),
        continue_by=ContinueBy.LLAMA_CPP,
    ),
    "transformers": EnginePreset(
        command=_transformers,
        sources=frozenset({SourceKind.PATH, SourceKind.HF}),
        serves_one_name=True,
    ),
    "tiny": EnginePreset(
        command=_tiny,
        sources=frozenset({SourceKind.PATH}),
        continue_by=ContinueBy.TEXT,
    ),
}
