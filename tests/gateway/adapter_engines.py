"""Mock engines that load LoRA adapters as vLLM and SGLang do, or have them as llama.cpp
does."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.gateway.worlds import MockReplica, ReplicaSide, Request, json_bytes

LEGAL = {"name": "legal", "path": "/data/legal"}
TONE = {"name": "tone", "path": "/data/tone"}
MEDICAL = {"name": "medical", "path": "/data/medical"}


def answer(side: ReplicaSide, value: object, status: str = "200 OK") -> None:
    body = json.dumps(value).encode()
    head = f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\n"
    side.write(head.encode() + b"content-length: %d\r\n\r\n%b" % (len(body), body))


@dataclass(eq=False)
class AdapterEngine:
    """Engine with adapters that are loaded while it runs.

    Args:
        loaded: Path of each loaded adapter.
        failing: Adapters that cannot be loaded.
    """

    name: str
    loaded: dict[str, str] = field(default_factory=dict)
    failing: set[str] = field(default_factory=set)
    holds_loads: bool = False
    loads: list[str] = field(default_factory=list)
    unloads: list[str] = field(default_factory=list)
    served: list[str] = field(default_factory=list)
    held: list[Callable[[], None]] = field(default_factory=list)
    held_answers: list[ReplicaSide] | None = None

    @property
    def replica(self) -> MockReplica:
        return MockReplica(self.name, self.behave)

    def behave(self, request: Request, side: ReplicaSide) -> None:
        path = request.head.split(b" ")[1]
        if path == b"/v1/models":
            cards = [
                {"id": name, "root": root, "parent": "chat"}
                for name, root in self.loaded.items()
            ]
            answer(side, {"data": [{"id": "chat", "parent": None}, *cards]})
        elif path == b"/v1/load_lora_adapter":
            self.load(request.json, side)
        elif path == b"/v1/unload_lora_adapter":
            self.unloads.append(request.json["lora_name"])
            self.loaded.pop(request.json["lora_name"], None)
            answer(side, "Success")
        else:
            self.serve(request.json, side)

    def load(self, body: Any, side: ReplicaSide) -> None:
        name = body["lora_name"]
        self.loads.append(name)

        def end() -> None:
            if name in self.failing:
                answer(side, {"error": {"message": "rank 128"}}, "400 Bad Request")
                return
            self.loaded[name] = body["lora_path"]
            answer(side, "Success: LoRA adapter added")

        if self.holds_loads:
            self.held.append(end)
        else:
            end()

    def serve(self, body: Any, side: ReplicaSide) -> None:
        model = body["model"]
        if model != "chat" and model not in self.loaded:
            answer(side, {"error": {"message": "no such model"}}, "404 Not Found")
            return
        self.served.append(model)
        if self.held_answers is not None:
            self.held_answers.append(side)
        else:
            side.write(json_bytes(model))

    def release(self) -> None:
        """End the loads under way."""
        self.holds_loads = False
        held, self.held = self.held, []
        for end in held:
            end()


class SglangEngine(AdapterEngine):
    """Engine that refuses a second load, and finds the adapter after a colon."""

    def behave(self, request: Request, side: ReplicaSide) -> None:
        path = request.head.split(b" ")[1]
        if path in (b"/load_lora_adapter", b"/unload_lora_adapter"):
            head = request.head.replace(b" /", b" /v1/", 1)
            super().behave(Request(head, request.body), side)
        elif path.endswith(b"load_lora_adapter"):
            answer(side, {"detail": "Not Found"}, "404 Not Found")
        else:
            super().behave(request, side)

    def load(self, body: Any, side: ReplicaSide) -> None:
        if body["lora_name"] in self.loaded:
            self.loads.append(body["lora_name"])
            refusal = {"success": False, "error_message": "it exists"}
            answer(side, refusal, "400 Bad Request")
        else:
            super().load(body, side)

    def serve(self, body: Any, side: ReplicaSide) -> None:
        base, _, adapter = body["model"].partition(":")
        assert base in ("chat", "org/name")
        if adapter and adapter not in self.loaded:
            answer(side, {"error": {"message": "not loaded"}}, "400 Bad Request")
        else:
            super().serve({**body, "model": adapter or "chat"}, side)


@dataclass(eq=False)
class FixedEngine:
    """Engine that has its adapters from its start, with their places as ids."""

    name: str
    paths: list[str]
    scales: dict[int, float] = field(default_factory=dict)
    bodies: list[Any] = field(default_factory=list)

    @property
    def replica(self) -> MockReplica:
        return MockReplica(self.name, self.behave)

    def behave(self, request: Request, side: ReplicaSide) -> None:
        method, path, _ = request.head.split(b" ", 2)
        if path == b"/lora-adapters":
            if method == b"POST":
                self.scales = {row["id"]: row["scale"] for row in request.json}
            rows = [
                {"id": place, "path": path, "scale": self.scales.get(place, 1.0)}
                for place, path in enumerate(self.paths)
            ]
            answer(side, rows)
            return
        self.bodies.append(request.json)
        side.write(json_bytes())
