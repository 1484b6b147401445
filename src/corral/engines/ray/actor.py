"""The agent actor: Ray keeps one on each of its nodes, and the actor keeps the node's
agent running.

The module is imported by Ray's worker on the node. The agent and its ranks outlive the
actor, and the next actor finds them.
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
    """The actor of one node. `folder` is the node's folder; an actor that Ray has
    restarted continues with what is in the folder."""

    def __init__(self, node: str, folder: str) -> None:
        self._node = NodeId(node)
        self._dir = Path(folder)
        self._local: LocalNode | None = None
        self._looking: asyncio.Task[None] | None = None

    async def outfit(self, files: Mapping[str, bytes]) -> dict[str, Any]:
        """Write these files to the node's folder, readable only by their owner, and let
        the agent run.

        An agent that runs with other settings is ended first; its attempts run on.
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
        """Return whether the file must not be overwritten: no head may replace the
        policy that the machine's administrator wrote."""
        return name == POLICY_FILE and (self._dir / name).exists()

    async def resume(self) -> bool:
        """Supervise the agent again if an earlier actor has set up the node's folder.
        Return whether an agent is supervised now."""
        if self._local is None and (self._dir / "node.json").exists():
            self._start_agent()
        return self._local is not None

    async def look(self) -> dict[str, Any]:
        """Return the current state."""
        await self.resume()
        return self.seen()

    async def lives(self, folder: str) -> bool:
        """Return whether any process of the node with this folder lives on this
        machine. The folder may be this node's or another node's."""
        local_node = LocalNode(
            id=self._node, dir=Path(folder), reboot_seconds=0.0, on_death=lambda: None
        )
        return local_node.is_there()

    async def end(self, kill: bool) -> None:
        """End the agent. With `kill`, or if no attempt runs, also end all other
        processes of the node."""
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
    """Start a program that is not a child of this process, since Ray ends an actor's
    children together with the actor.

    Returns: its process id. Raises: OSError, subprocess.CalledProcessError.
    """
    helper = [sys.executable, "-P", "-c", _SPAWN, str(output), *words]
    done = subprocess.run(
        helper, env=env, stdout=subprocess.PIPE, text=True, check=True
    )
    return int(done.stdout)


def _replace_file(file: Path, content: bytes) -> bool:
    """Replace the file atomically, with mode 0600; return False if it already has this
    content."""
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
