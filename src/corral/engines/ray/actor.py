"""The agent actor: Ray keeps one on each of its nodes, and it keeps the node's agent
running.

It is imported by Ray's worker there. The agent and its ranks outlive it: the next one
finds them.
"""

import asyncio
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from corral.domain.ids import NodeId
from corral.engines.local.node import LocalNode
from corral.wire.node_policy import POLICY_FILE

LOOK_SECONDS: Final = 1.0
END_SECONDS: Final = 10.0
_SPAWN: Final = """
import os, sys
from pathlib import Path
from corral.engines.local.processes import spawn
print(spawn(sys.argv[2:], os.environ, Path(sys.argv[1])))
"""
_OF_RAY: Final = (
    "RAY_",
    "CUDA_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "PYTHONBREAKPOINT",
)


class AgentActor:
    """One node's. `folder` is the node's; an actor that Ray has started again goes on
    with what lies there."""

    def __init__(self, node: str, folder: str) -> None:
        self._node = NodeId(node)
        self._dir = Path(folder)
        self._local: LocalNode | None = None
        self._looking: asyncio.Task[None] | None = None

    async def outfit(self, files: Mapping[str, bytes]) -> dict[str, Any]:
        """Let the folder hold these files, readable by their owner alone, and the agent
        run.

        An agent that runs by other settings is ended first; what it runs, runs on.
        """
        self._dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name in ("attempts", "cache", "disk"):
            (self._dir / name).mkdir(mode=0o700, exist_ok=True)
        new_files = {name: files[name] for name in files if not self._is_kept(name)}
        changed = [
            name
            for name, content in new_files.items()
            if _replace_file(self._dir / name, content)
        ]
        if self._local is None:
            self._start_agent()
        if {"node.json", "token"} & set(changed):
            await self._agent_ends()
            assert self._local is not None
            self._local.begin()
        return self.seen()

    def _is_kept(self, name: str) -> bool:
        """The policy of the machine's administrator stays as it is: no head may lift
        it."""
        return name == POLICY_FILE and (self._dir / name).exists()

    async def resume(self) -> bool:
        """Go on with what an earlier actor left; False when it left nothing."""
        if self._local is None and (self._dir / "node.json").exists():
            self._start_agent()
        return self._local is not None

    async def look(self) -> dict[str, Any]:
        """Return the current state."""
        await self.resume()
        return self.seen()

    async def lives(self, folder: str) -> bool:
        """Whether anything lives of a node of this machine, this one or another."""
        local_node = LocalNode(
            id=self._node, dir=Path(folder), reboot_seconds=0.0, on_death=lambda: None
        )
        return local_node.is_there()

    async def end(self, kill: bool) -> None:
        """End the agent, and with `kill`, or where nothing runs, all of the node."""
        if not await self.resume():
            return
        assert self._local is not None
        if self._looking is not None:
            self._looking.cancel()
        await self._agent_ends()
        if kill or not self._local.shims():
            await self._local.kill()
        self._local.close()
        self._local = self._looking = None

    def seen(self) -> dict[str, Any]:
        agent = self._local.agent if self._local is not None else None
        return {"agent": agent.pid if agent is not None else None, "actor": os.getpid()}

    def _start_agent(self) -> None:
        self._local = LocalNode(
            id=self._node,
            dir=self._dir,
            reboot_seconds=0.0,
            on_death=lambda: None,
            env={
                name: os.environ[name]
                for name in os.environ
                if not name.startswith(_OF_RAY)
            },
            start=start_apart,
        )
        self._local.begin()
        self._looking = asyncio.create_task(self._look_after(self._local))

    async def _look_after(self, local: LocalNode) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            local.look_after()

    async def _agent_ends(self) -> None:
        assert self._local is not None
        self._local.stop_agent()
        clock = asyncio.get_running_loop().time
        deadline = clock() + END_SECONDS
        while self._local.agent is not None and clock() < deadline:
            await asyncio.sleep(0.02)


def start_apart(words: list[str], env: Mapping[str, str], output: Path) -> int:
    """Start a program that is no child of this process, for Ray ends an actor's
    children with it.

    Returns: its process id. Raises: OSError, subprocess.CalledProcessError.
    """
    helper = [sys.executable, "-P", "-c", _SPAWN, str(output), *words]
    done = subprocess.run(
        helper, env=env, stdout=subprocess.PIPE, text=True, check=True
    )
    return int(done.stdout)


def _replace_file(file: Path, content: bytes) -> bool:
    """Let the file hold this, as a whole and 0600; False when it does already."""
    if file.exists() and file.read_bytes() == content:
        return False
    staged_file = file.with_name(f".{file.name}.{os.getpid()}")
    with os.fdopen(
        os.open(staged_file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb"
    ) as opened:
        opened.write(content)
        opened.flush()
        os.fsync(opened.fileno())
    staged_file.rename(file)
    return True
