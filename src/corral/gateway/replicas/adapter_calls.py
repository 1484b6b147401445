"""Requests by which engines list, load and unload LoRA adapters, and choose one."""

from abc import ABC, abstractmethod
from typing import Any, Final, TypeVar

import msgspec

from corral.gateway.framing.request_body import body_with_model
from corral.gateway.replicas.engine_call import EngineCallFailed, call_engine
from corral.gateway.replicas.replica_pool import ReplicaPool
from corral.wire.gateway_routes import AdapterEntry

MODELS_PATH: Final = b"/v1/models"
LOAD_PATH: Final = b"/v1/load_lora_adapter"
UNLOAD_PATH: Final = b"/v1/unload_lora_adapter"
SGLANG_LOAD_PATH: Final = b"/load_lora_adapter"
SGLANG_UNLOAD_PATH: Final = b"/unload_lora_adapter"
LLAMA_PATH: Final = b"/lora-adapters"
# llama.cpp answers a request that names no adapter from the cache of the last one, which
# had one. It keeps them apart if each names an adapter: this scale changes no weight.
LLAMA_BASE: Final = b'{"lora":[{"id":0,"scale":1e-30}],'
MESSAGE_CHARACTERS: Final = 300
Value = TypeVar("Value")
ALREADY_LOADED: Final = b"already been loaded"


class AdapterCalls(ABC):
    """Requests of one engine. Each raises EngineCallFailed."""

    @abstractmethod
    async def loaded(self, pool: ReplicaPool) -> dict[str, str]:
        """Return the paths of the adapters that a replica has, by the engine's name."""

    @abstractmethod
    async def load(self, pool: ReplicaPool, adapter: AdapterEntry) -> None:
        """Load an adapter."""

    @abstractmethod
    async def unload(self, pool: ReplicaPool, name: str) -> None:
        """Unload an adapter."""

    @abstractmethod
    def body_for(self, body: bytes, adapter: AdapterEntry, engine_name: str) -> bytes:
        """Return the body of a request for an adapter."""

    def base_body(self, body: bytes) -> bytes:
        """Return the body of a request for the model itself."""
        return body

    @abstractmethod
    def engine_name(self, adapter: AdapterEntry, loaded: dict[str, str]) -> str | None:
        """Return the name of an adapter that a replica has; None if it has not."""


class VllmCalls(AdapterCalls):
    """Requests of vLLM: adapters are models, which are loaded while it runs."""

    async def loaded(self, pool: ReplicaPool) -> dict[str, str]:
        text = await _answer(pool, b"GET", MODELS_PATH)
        models = _decoded(text, dict[str, Any]).get("data")
        if not isinstance(models, list):
            raise EngineCallFailed("the engine lists no models")
        return {
            str(model["id"]): str(model.get("root"))
            for model in models
            if isinstance(model, dict) and model.get("id") and model.get("parent")
        }

    async def load(self, pool: ReplicaPool, adapter: AdapterEntry) -> None:
        body = {"lora_name": adapter.name, "lora_path": adapter.path}
        status, text = await call_engine(
            pool, b"POST", LOAD_PATH, msgspec.json.encode(body)
        )
        if status != 200 and ALREADY_LOADED not in text:
            raise EngineCallFailed(_shown(status, text))

    async def unload(self, pool: ReplicaPool, name: str) -> None:
        await _answer(
            pool, b"POST", UNLOAD_PATH, msgspec.json.encode({"lora_name": name})
        )

    def body_for(self, body: bytes, adapter: AdapterEntry, engine_name: str) -> bytes:
        return body_with_model(body, adapter.name)

    def engine_name(self, adapter: AdapterEntry, loaded: dict[str, str]) -> str | None:
        path = loaded.get(adapter.name)
        # vLLM lists the folder to which it has downloaded an adapter
        is_same = path == adapter.path or not adapter.path.startswith(("/", "."))
        return adapter.name if path is not None and is_same else None


class SglangCalls(VllmCalls):
    """Requests of SGLang: it lists adapters as vLLM does, and a request names the model
    and the adapter."""

    async def load(self, pool: ReplicaPool, adapter: AdapterEntry) -> None:
        body = {"lora_name": adapter.name, "lora_path": adapter.path}
        text = msgspec.json.encode(body)
        status, answer = await call_engine(pool, b"POST", SGLANG_LOAD_PATH, text)
        # it refuses an adapter that another gateway has just loaded
        if status != 200 and adapter.name not in await self.loaded(pool):
            raise EngineCallFailed(_shown(status, answer))

    async def unload(self, pool: ReplicaPool, name: str) -> None:
        text = msgspec.json.encode({"lora_name": name})
        await _answer(pool, b"POST", SGLANG_UNLOAD_PATH, text)

    def body_for(self, body: bytes, adapter: AdapterEntry, engine_name: str) -> bytes:
        model = _decoded(body, dict[str, Any]).get("model")
        return body_with_model(body, f"{model}:{adapter.name}")


class _LlamaAdapter(msgspec.Struct):
    """Adapter as llama.cpp lists it."""

    id: int
    path: str
    scale: float = 0.0


class LlamaCppCalls(AdapterCalls):
    """Requests of llama.cpp: it loads all adapters at its start, and a request names
    those that are applied to it."""

    async def loaded(self, pool: ReplicaPool) -> dict[str, str]:
        text = await _answer(pool, b"GET", LLAMA_PATH)
        rows = _decoded(text, list[_LlamaAdapter])
        await self._disable(pool, rows)
        return {str(row.id): row.path for row in rows}

    async def _disable(self, pool: ReplicaPool, rows: list[_LlamaAdapter]) -> None:
        """Let a request that names no adapter get none."""
        if any(row.scale for row in rows):
            wanted = [{"id": row.id, "scale": 0.0} for row in rows]
            await _answer(pool, b"POST", LLAMA_PATH, msgspec.json.encode(wanted))

    async def load(self, pool: ReplicaPool, adapter: AdapterEntry) -> None:
        raise EngineCallFailed("the replica was started without this adapter")

    async def unload(self, pool: ReplicaPool, name: str) -> None:
        """Do nothing: its adapters stay."""

    def body_for(self, body: bytes, adapter: AdapterEntry, engine_name: str) -> bytes:
        fields = _decoded(body, dict[str, msgspec.Raw])
        chosen = [{"id": int(engine_name), "scale": 1.0}]
        fields["lora"] = msgspec.Raw(msgspec.json.encode(chosen))
        return msgspec.json.encode(fields)

    def base_body(self, body: bytes) -> bytes:
        text = body.lstrip()
        return LLAMA_BASE + text[1:] if text.startswith(b"{") else body

    def engine_name(self, adapter: AdapterEntry, loaded: dict[str, str]) -> str | None:
        ending = adapter.path.removeprefix("~")
        for name, path in loaded.items():
            if path == adapter.path or (
                adapter.path.startswith("~") and path.endswith(ending)
            ):
                return name
        return None


ADAPTER_CALLS: Final[dict[str, AdapterCalls]] = {
    "vllm": VllmCalls(),
    "sglang": SglangCalls(),
    "llama.cpp": LlamaCppCalls(),
}


async def _answer(
    pool: ReplicaPool, method: bytes, path: bytes, body: bytes = b""
) -> bytes:
    status, text = await call_engine(pool, method, path, body)
    if status != 200:
        raise EngineCallFailed(_shown(status, text))
    return text


def _decoded(text: bytes, kind: type[Value]) -> Value:
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise EngineCallFailed("the engine's answer is not valid") from None


def _shown(status: int, text: bytes) -> str:
    return f"{status}: {text[:MESSAGE_CHARACTERS].decode(errors='replace')}"
