"""Answers to the head's requests for output files, over a connection that the agent has
opened."""

import asyncio
import contextlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from websockets.asyncio.client import ClientConnection

from corral.agent.outputs.folder_walk import list_written
from corral.agent.outputs.send_helper import ABSENT, CHUNK_BYTES, REFUSED
from corral.agent.outputs.work_record import WORK, read_record
from corral.domain.observed_state import AttemptKey
from corral.wire.agent_messages import FRAME_BYTES, FilesNow
from corral.wire.output_frames import DATA, Outcome, encode_end, encode_listing

COMMAND: Final = (sys.executable, "-P", "-m", "corral.agent.outputs.send_helper")
STALLED_SECONDS: Final = 120.0  # that a reader takes nothing
AT_ONCE: Final = 4
GONE: Final = "the work folder of the attempt is no longer kept"
OUTCOMES: Final[Mapping[int, Outcome]] = {
    0: "sent",
    ABSENT: "absent",
    REFUSED: "refused",
}


class OutputServer:
    """Sender of output files of one node, which serves a limited number of requests at
    the same time."""

    def __init__(self, attempts: Path) -> None:
        self._attempts = attempts
        self._places = asyncio.Semaphore(AT_ONCE)

    async def serve(self, request: FilesNow, connection: ClientConnection) -> None:
        """Send the requested files, or the list of files. Raises: OSError,
        WebSocketException, TimeoutError."""
        key = (request.job, request.attempt)
        async with self._places:
            try:
                if request.path is None:
                    end_frame = await self._send_listing(key, connection)
                else:
                    end_frame = await self._send(key, request.path, connection)
            except (FileNotFoundError, NotADirectoryError):
                end_frame = encode_end("absent", GONE)
            await connection.send(end_frame)

    def _folder(self, key: AttemptKey) -> Path:
        return self._attempts / f"{key[0]}.{key[1]}"

    async def _send_listing(
        self, key: AttemptKey, connection: ClientConnection
    ) -> bytes:
        folder = self._folder(key)
        since_ns = read_record(folder).since_ns
        listing = encode_listing(
            await asyncio.to_thread(list_written, folder / WORK, since_ns)
        )
        size = FRAME_BYTES // 2
        for offset in range(0, len(listing), size):
            await connection.send(DATA + listing[offset : offset + size])
        return encode_end("sent")

    async def _send(
        self, key: AttemptKey, path: str, connection: ClientConnection
    ) -> bytes:
        work = self._folder(key) / WORK
        if not work.is_dir():
            return encode_end("absent", GONE)
        helper = await asyncio.create_subprocess_exec(
            *COMMAND,
            str(work),
            path,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        assert helper.stdout is not None
        assert helper.stderr is not None
        try:
            while data := await helper.stdout.read(CHUNK_BYTES):
                async with asyncio.timeout(STALLED_SECONDS):
                    await connection.send(DATA + data)
            stderr_text = (
                (await helper.stderr.read(4096)).decode(errors="replace").strip()
            )
            code = await helper.wait()
            reason = (
                stderr_text or f"the process that sends the files ended with {code}"
            ).splitlines()[-1]
            return encode_end(OUTCOMES.get(code, "refused"), reason if code else "")
        finally:
            with contextlib.suppress(ProcessLookupError):
                helper.kill()
            await helper.communicate()  # `wait` alone hangs where the stream is paused
