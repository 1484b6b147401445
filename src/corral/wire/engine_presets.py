"""Presets of inference engines: the command of a replica, its probe, and how another
replica continues its streams.

A command uses the variables of a replica: CORRAL_HOST and CORRAL_PORT, where it listens,
and CORRAL_REPLICA_KEY, which it requires of requests. The key is given by an environment
variable where the engine reads one, because all users of a node see its command lines.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from shlex import quote
from typing import Final

from corral.domain.job import SleepCalls
from corral.domain.lending import ParkBy
from corral.domain.resources import Shape
from corral.domain.serving_roles import CacheTransfer, ServingRole
from corral.domain.stream_continuation import ContinueBy
from corral.domain.units import MILLIS_PER_GPU
from corral.wire.model_source import ModelSource, SourceKind, adapter_variable

# without requests, after which llama.cpp falls asleep by itself
_LLAMA_IDLE_SECONDS: Final = 30
_ADDRESS: Final = '--host "$CORRAL_HOST" --port "$CORRAL_PORT"'
MOST_LORA_RANK: Final = 64  # vLLM refuses adapters of a higher rank
BOOTSTRAP_PORT: Final = 8998  # usual one of SGLang
# vLLM's replicas agree there on the transfer of a cache; 5600 is its usual port
_NIXL_ADDRESS: Final = (
    'export VLLM_NIXL_SIDE_CHANNEL_HOST="$CORRAL_HOST"\n'
    'export VLLM_NIXL_SIDE_CHANNEL_PORT="${CORRAL_TRANSFER_PORT:-5600}"\n'
)
# GPUs of the node, or 1 for a share of a GPU; shapes of `any_of` have different numbers
_GPUS_OF_NODE: Final = "$((${CORRAL_GPUS%.*} > 1 ? ${CORRAL_GPUS%.*} : 1))"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineArguments:
    """What the command of an engine depends on.

    Args:
        names: Names under which the model is served, at least one.
        tensor_parallel: GPUs over which the model is split, as a word of a shell
            command; "" for one GPU or none.
        sleeps: Whether the engine is to be put to sleep and woken.
        max_adapters: Most adapters that a replica has loaded; 0: it can load none.
        adapters: Adapters that an engine loads at its start.
        fetched_adapters: Names of the adapters that the node fetches.
        has_kv_events: Whether it publishes the events of its KV cache.
        role: Part of each request that the replica computes.
    """

    model: ModelSource
    names: Sequence[str]
    tensor_parallel: str = ""
    sleeps: bool = False
    max_adapters: int = 0
    adapters: Sequence[ModelSource] = ()
    fetched_adapters: Sequence[str] = ()
    has_kv_events: bool = False
    role: ServingRole = ServingRole.WHOLE


@dataclass(frozen=True, slots=True, kw_only=True)
class EnginePreset:
    """An inference engine that Corral can start.

    Args:
        command: Shell command of a replica.
        continue_by: How another replica continues its streams.
        probe: Path that answers 200 once it is ready.
        serves_one_name: Whether it refuses requests for a second name of its model.
        sleep_calls: Requests by which it sleeps and wakes; None if it cannot.
        adapter_sources: Where its adapters may lie; empty: it has none.
        max_adapters: Usual number of adapters that a replica has loaded at once.
        has_fixed_adapters: Whether it loads all adapters at its start, and no others.
        has_kv_events: Whether it can publish the events of its KV cache.
        lists_its_model: Whether its list of models has the one that it serves.
        transfer: How its prefill replicas hand a prompt's KV cache over.
    """

    command: Callable[[EngineArguments], str]
    continue_by: ContinueBy = ContinueBy.NONE
    probe: str = "/health"
    serves_one_name: bool = False
    sleep_calls: SleepCalls | None = None
    adapter_sources: frozenset[SourceKind] = frozenset()
    max_adapters: int = 0
    has_fixed_adapters: bool = False
    has_kv_events: bool = False
    lists_its_model: bool = True
    transfer: CacheTransfer = CacheTransfer.NONE

    @property
    def park(self) -> ParkBy:
        """Return what a sleeping replica keeps, unless the document says it."""
        return ParkBy.CACHE if self.sleep_calls is None else ParkBy.ENGINE


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


def _fetched(names: Sequence[str]) -> str:
    """Return the fetched adapters as vLLM and SGLang take them: NAME=PATH."""
    return " ".join(
        f'{quote(name)}="${adapter_variable(number)}"'
        for number, name in enumerate(names, 1)
    )


def _vllm(arguments: EngineArguments) -> str:
    model = arguments.model
    command = _words(
        "exec vllm serve",
        model.shell_word,
        _ADDRESS,
        _option("--served-model-name", " ".join(map(quote, arguments.names))),
        _option("--tensor-parallel-size", arguments.tensor_parallel),
        "--enable-prompt-tokens-details",
        "--enable-sleep-mode" if arguments.sleeps else "",
        _vllm_adapters(arguments.max_adapters),
        _option("--lora-modules", _fetched(arguments.fetched_adapters)),
        _vllm_transfer(arguments.role),
        '"$@"' if arguments.has_kv_events else "",
    )
    # it answers /sleep and /wake_up in this mode only
    mode = "export VLLM_SERVER_DEV_MODE=1\n" if arguments.sleeps else ""
    if arguments.max_adapters:
        mode += "export VLLM_ALLOW_RUNTIME_LORA_UPDATING=True\n"
    if arguments.role is not ServingRole.WHOLE:
        mode += _NIXL_ADDRESS
    if arguments.has_kv_events:
        mode += _kv_events('"enable_kv_cache_events": true')
    return f'export VLLM_API_KEY="$CORRAL_REPLICA_KEY"\n{mode}{command}'


def _kv_events(*more: str) -> str:
    """Return the lines that make the arguments of an engine that publishes the events
    of its KV cache. Engines bind the address of a publisher only if it has a star.

    Args:
        more: Further members of the JSON object.
    """
    members = (
        *more,
        '"publisher": "zmq"',
        '"endpoint": "tcp://*:$CORRAL_KV_EVENTS_PORT"',
        '"replay_endpoint": "tcp://$CORRAL_HOST:$CORRAL_KV_REPLAY_PORT"',
    )
    text = f"{{{', '.join(members)}}}".replace('"', '\\"')
    return (
        "set --\n"
        'if [ -n "$CORRAL_KV_EVENTS_PORT" ]; then\n'
        f'  set -- --kv-events-config "{text}"\n'
        "fi\n"
    )


def _vllm_transfer(role: ServingRole) -> str:
    """Return the option for the transfer of KV caches. A prompt whose cache does not
    arrive is computed again, so that its request does not fail."""
    if role is ServingRole.WHOLE:
        return ""
    config = {
        "kv_connector": "NixlConnector",
        "kv_role": "kv_producer" if role.is_prefill else "kv_consumer",
        "kv_load_failure_policy": "recompute",
    }
    return f"--kv-transfer-config {quote(json.dumps(config))}"


def _vllm_adapters(most: int) -> str:
    if not most:
        return ""
    return f"--enable-lora --max-loras {most} --max-lora-rank {MOST_LORA_RANK}"


def _sglang(arguments: EngineArguments) -> str:
    command = _words(
        "exec python -m sglang.launch_server --model-path",
        arguments.model.shell_word,
        _ADDRESS,
        _option("--served-model-name", quote(arguments.names[0])),
        _option("--tensor-parallel-size", arguments.tensor_parallel),
        '--api-key "$CORRAL_REPLICA_KEY" --enable-metrics --enable-cache-report',
        _sglang_transfer(arguments.role),
        _sglang_adapters(arguments.max_adapters),
        _option("--lora-paths", _fetched(arguments.fetched_adapters)),
        '"$@"' if arguments.has_kv_events else "",
    )
    return (_kv_events() if arguments.has_kv_events else "") + command


def _sglang_adapters(most: int) -> str:
    """Return the options of adapters. The model itself takes a place among them. An
    engine that starts without an adapter needs the names of the layers they change."""
    if not most:
        return ""
    places = most + 1
    return (
        f"--enable-lora --max-loras-per-batch {places} --max-loaded-loras {places} "
        f"--max-lora-rank {MOST_LORA_RANK} --lora-target-modules all"
    )


def _sglang_transfer(role: ServingRole) -> str:
    if role is ServingRole.WHOLE:
        return ""
    port = f'"${{CORRAL_TRANSFER_PORT:-{BOOTSTRAP_PORT}}}"'
    return _words(
        f"--disaggregation-mode {role.value} --disaggregation-transfer-backend nixl",
        _option("--disaggregation-bootstrap-port", port if role.is_prefill else ""),
    )


def _llama_cpp(arguments: EngineArguments) -> str:
    options = _words(
        '--model "$model"',
        _ADDRESS,
        _option("--alias", quote(arguments.names[0])),
        f"--sleep-idle-seconds {_LLAMA_IDLE_SECONDS}" if arguments.sleeps else "",
    )
    adapters = [f"--lora {adapter.shell_word}" for adapter in arguments.adapters]
    chosen = '"$@"' if adapters else ""
    return (
        f"model={arguments.model.shell_word}\n"
        # of a folder, the first file of weights, which names the others
        'if [ -d "$model" ]; then\n'
        '  for file in "$model"/*.gguf; do model=$file; break; done\n'
        "fi\n"
        "if command -v llama-server >/dev/null; then\n"
        '  export LLAMA_API_KEY="$CORRAL_REPLICA_KEY"\n'
        f"{_llama_adapters(arguments.adapters)}"
        f"  exec llama-server {_words(options, chosen)} --metrics\n"
        "fi\n"
        f"exec python -m corral.serve.llama_cpp {_words(options, *adapters)}"
    )


def _llama_adapters(adapters: Sequence[ModelSource]) -> str:
    """Return the lines that set the options of llama-server's adapters: with a scale of
    0 they are applied only to requests that name them. The options have two forms, by
    the server's version."""
    if not adapters:
        return ""
    words = [adapter.shell_word for adapter in adapters]
    new = " ".join(f"--lora-scaled {word}:0" for word in words)
    old = " ".join(f"--lora-scaled {word} 0" for word in words)
    return (
        '  case "$(llama-server --help 2>&1)" in\n'
        f"    *FNAME:SCALE*) set -- {new} ;;\n"
        f"    *) set -- {old} ;;\n"
        "  esac\n"
    )


def _transformers(arguments: EngineArguments) -> str:
    """It serves a model under the path by which it was given. A link gives the path the
    name that requests use."""
    path = f'"$(realpath {arguments.model.shell_word})"'
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


_LOADED_OR_FETCHED: Final = frozenset({SourceKind.PATH, SourceKind.HF, SourceKind.S3})
ENGINE_PRESETS: Final[Mapping[str, EnginePreset]] = {
    "vllm": EnginePreset(
        command=_vllm,
        continue_by=ContinueBy.VLLM,
        sleep_calls=SleepCalls(
            sleep="/sleep?level=1",
            wake="/wake_up",
            state="/is_sleeping",
            state_field="is_sleeping",
        ),
        adapter_sources=_LOADED_OR_FETCHED,
        max_adapters=4,
        has_kv_events=True,
        transfer=CacheTransfer.VLLM,
    ),
    "sglang": EnginePreset(
        command=_sglang,
        adapter_sources=_LOADED_OR_FETCHED,
        max_adapters=4,
        has_kv_events=True,
        transfer=CacheTransfer.SGLANG,
    ),
    "llama.cpp": EnginePreset(
        command=_llama_cpp,
        continue_by=ContinueBy.LLAMA_CPP,
        sleep_calls=SleepCalls(
            wake="/tokenize",
            wake_body='{"content": "a"}',
            state="/props",
            state_field="is_sleeping",
        ),
        adapter_sources=frozenset({SourceKind.PATH}),
        max_adapters=64,
        has_fixed_adapters=True,
    ),
    "transformers": EnginePreset(
        command=_transformers,
        serves_one_name=True,
        lists_its_model=False,  # but those of the cache of Hugging Face
    ),
    "tiny": EnginePreset(
        command=_tiny,
        continue_by=ContinueBy.TEXT,
    ),
}
