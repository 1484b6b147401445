"""Communication with Ray through one helper process, which is restarted when it dies."""

import asyncio
import base64
import json
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from shlex import quote
from typing import Any, Final

from corral.domain.errors import Trouble
from corral.domain.ids import NodeId
from corral.engines.ray import start_options
from corral.engines.ray.nodes import RaySnapshot, look_of

START_SECONDS: Final = 60.0
CALL_SECONDS: Final = 30.0
LINE_BYTES: Final = 64 * 1024 * 1024
log = logging.getLogger(__name__)


_ACTIONS: Final = {  # of the helper's calls, for people
    "look": "list its nodes",
    "outfit": "start the agent of a node",
    "look_at": "check the agent of a node",
    "lives": "check the processes of a node",
    "end": "end the agent of a node",
    "hold": "reserve a GPU",
    "let_go": "release a GPU",
    "held": "list the GPUs that it has reserved",
    "ask_for": "accept the request for more nodes",
}


class RayTrouble(Trouble):
    """Ray does not carry out a request now."""

    code = "ray_trouble"


@dataclass(slots=True, kw_only=True)
class RayDriver:
    """Calls to Ray. Each raises RayTrouble when Ray refuses, or does not answer in
    time.

    `address`: the address of the Ray cluster. `cluster`: the name that Corral's own
    objects in Ray carry. `log_file`: the file for Ray's output.
    """

    address: str
    cluster: str
    token_file: str
    log_file: Path
    # of nodes of Ray, as they were called
    _names: dict[str, NodeId] = field(default_factory=dict)
    _process: asyncio.subprocess.Process | None = None
    _reading: asyncio.Task[None] | None = None
    _waiting: dict[int, asyncio.Future[Any]] = field(default_factory=dict)
    _numbers: "count[int]" = field(default_factory=lambda: count(1))
    _starting: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def shown_by(self) -> str:
        """Return the command that shows this Ray's nodes, on the head's machine."""
        file = quote(self.token_file)
        token = (
            f"RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH={file} "
            if self.token_file
            else ""
        )
        return f"{token}ray status --address {self.address}"

    async def look(self) -> RaySnapshot:
        look = look_of(await self._call_helper("look"), self._names)
        self._names = {row.ray_node: row.id for row in look.nodes}
        return look

    async def outfit(
        self, ray_node: str, *, node: str, folder: str, files: Mapping[str, bytes]
    ) -> None:
        """Write these files to the node's folder and let its agent run."""
        await self._call_helper(
            "outfit",
            name=self._agent_actor_name(ray_node),
            ray_node=ray_node,
            node=node,
            folder=folder,
            files={
                name: base64.b64encode(text).decode() for name, text in files.items()
            },
        )

    async def look_at(self, ray_node: str) -> None:
        """Let the node's actor check its agent. Raises: RayTrouble if the actor does
        not answer."""
        await self._call_helper("look_at", name=self._agent_actor_name(ray_node))

    async def lives(self, folder: str, *, witness: str) -> bool:
        """Return whether any process of the node with this folder lives, as seen by the
        actor of the Ray node `witness`, which is on the same machine."""
        return bool(
            await self._call_helper(
                "lives", name=self._agent_actor_name(witness), folder=folder
            )
        )

    async def end(self, ray_node: str, *, kill: bool) -> None:
        """End the node's agent and its actor; with `kill`, end the running attempts
        too."""
        await self._call_helper("end", name=self._agent_actor_name(ray_node), kill=kill)

    async def hold(self, ray_node: str, number: int) -> int:
        """Reserve one more GPU of the node in Ray's accounting, as reservation
        `number`. Return the GPU's index on the machine."""
        name = start_options.hold_name(self.cluster, ray_node, number)
        indices = await self._call_helper("hold", name=name, ray_node=ray_node)
        return int(indices[0])

    async def let_go(self, ray_node: str, number: int) -> None:
        await self._call_helper(
            "let_go", name=start_options.hold_name(self.cluster, ray_node, number)
        )

    async def held(self, ray_node: str) -> list[int]:
        """Return the numbers of the GPU reservations on the node, whichever head made
        them."""
        prefix = start_options.hold_name(self.cluster, ray_node, 0).removesuffix("0")
        names = await self._call_helper("held")
        return [
            int(name.removeprefix(prefix)) for name in names if name.startswith(prefix)
        ]

    async def ask_for(self, bundles: Sequence[Mapping[str, float]]) -> None:
        """Request resources from Ray's autoscaler for the work that waits for nodes."""
        await self._call_helper("ask_for", bundles=[dict(bundle) for bundle in bundles])

    async def close(self) -> None:
        """End the helper; its objects in Ray stay."""
        process, self._process = self._process, None
        if process is not None:
            await _kill_process(process)
        if self._reading is not None:
            await asyncio.gather(self._reading, return_exceptions=True)

    def kill(self) -> None:
        """End the helper at once."""
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.kill()

    def _agent_actor_name(self, ray_node: str) -> str:
        return start_options.actor_name(self.cluster, ray_node)

    async def _call_helper(self, call: str, **args: Any) -> Any:
        process = await self._ensure_helper()
        assert process.stdin is not None
        number = next(self._numbers)
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        line = json.dumps({"id": number, "call": call, "args": args}).encode() + b"\n"
        try:
            process.stdin.write(line)
            async with asyncio.timeout(CALL_SECONDS):
                return await answer
        except (TimeoutError, OSError) as silence:
            await _kill_process(
                process
            )  # it hangs in Ray, and may have kept others waiting
            raise RayTrouble(
                f"Ray did not {_ACTIONS[call]} within {CALL_SECONDS:g} s",
                is_silence=True,
            ) from silence
        finally:
            self._waiting.pop(number, None)

    async def _ensure_helper(self) -> asyncio.subprocess.Process:
        """Return the helper process, and start it again if it has died. Raises:
        RayTrouble."""
        async with self._starting:
            if self._process is None or self._process.returncode is not None:
                self._process = await self._start()
            return self._process

    async def _start(self) -> asyncio.subprocess.Process:
        command = [sys.executable, "-P", "-m", "corral.engines.ray.helper"]
        env = {**os.environ, **start_options.environment(self.token_file)}
        with self.log_file.open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                *command,
                self.address,
                start_options.namespace(self.cluster),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=output,
                env=env,
                limit=LINE_BYTES,
                start_new_session=True,
            )
        self._process = process
        assert process.stdout is not None
        line = b""
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(START_SECONDS):
                    line = await process.stdout.readline()
        finally:
            if not line:  # also where whoever asked is cancelled
                await _kill_process(process)
        if not line:
            raise RayTrouble(
                f"the Ray cluster at {self.address} cannot be reached",
                hint=f"read the log: less {self.log_file}",
                is_silence=True,
            )
        self._reading = asyncio.create_task(self._read(process))
        return process

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        waiting_calls = self._waiting
        while line := await process.stdout.readline():
            answer = json.loads(line)
            pending_call = waiting_calls.get(answer["id"])
            if pending_call is None or pending_call.done():
                continue
            if "trouble" in answer:
                pending_call.set_exception(RayTrouble(answer["trouble"]))
            else:
                pending_call.set_result(answer["found"])
        await process.wait()
        for pending_call in waiting_calls.values():
            if not pending_call.done():
                pending_call.set_exception(
                    RayTrouble("the helper process that calls Ray has ended")
                )


async def _kill_process(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):
        process.kill()
    await process.wait()
