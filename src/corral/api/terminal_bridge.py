"""Terminals: raw bytes are copied between a person's WebSocket and the agent's
WebSocket."""

import asyncio
import contextlib
from typing import Annotated, Final

from fastapi import Query
from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.websockets import WebSocket, WebSocketDisconnect

from corral.api.agent_channel import Channels, frame_of
from corral.api.agent_sessions import DialledSession, DialledSessions
from corral.api.auth import caller_of
from corral.api.errors import RequestInvalid
from corral.api.job_lookup import find_job
from corral.control import Control
from corral.domain.errors import Conflict, NotFound
from corral.domain.ids import NodeId
from corral.domain.job import Job
from corral.domain.rank_layout import ranks_on
from corral.wire.agent_messages import AttachNow, exit_code_of

MOST_COMMAND: Final = 4000  # characters: it is a part of an address
# a side that can no longer be sent to may still say how it ended
LAST_SECONDS: Final = 2.0


class Terminal(BaseModel):
    """Query parameters of a terminal."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    rank: Annotated[int, Query(ge=0, le=10**6)] = 0
    shell: bool = True
    rows: Annotated[int, Query(ge=1, le=1000)] = 24
    columns: Annotated[int, Query(ge=1, le=1000)] = 80
    command: Annotated[str, Query(max_length=MOST_COMMAND)] = ""


class Terminals:
    def __init__(self, channels: Channels, sessions: DialledSessions) -> None:
        self._channels = channels
        self._sessions = sessions

    async def person(self, socket: WebSocket, control: Control) -> None:
        """Connect a person's terminal to a rank.

        Raises, before the socket is accepted: NotFound, Forbidden, Conflict,
        RequestInvalid.
        """
        terminal = _parse_terminal_query(socket)
        caller = caller_of(socket)
        job = await find_job(control, socket.path_params["job"], caller)
        caller.check_job(job)
        node = _node_of(control, job, terminal.rank)
        program = terminal.command or ("a shell" if terminal.shell else "the output")
        detail = f"rank {terminal.rank}: {program}"
        entry = caller.entry(control.clock.wall(), on=job.id, detail=detail)
        await control.store.record(entry)
        id = control.clock.fresh_id()
        with self._sessions.opened(id, node, (job.id, job.attempt)) as session:
            agent = await self._connect_to_agent(session, id, job, terminal)
            await socket.accept()
            await _bridge_sockets(socket, agent)

    async def _connect_to_agent(
        self, session: DialledSession, id: str, job: Job, asked: Terminal
    ) -> WebSocket:
        request = AttachNow(
            session=id,
            job=job.id,
            attempt=job.attempt,
            rank=asked.rank,
            shell=asked.shell,
            rows=asked.rows,
            columns=asked.columns,
            command=asked.command,
        )
        if not self._channels.attach(session.node, request):
            hint = f"run: corral node show {session.node}"
            raise Conflict(f"node {session.node} is not connected now", hint=hint)
        return await session.dialled("terminal")


def _parse_terminal_query(socket: WebSocket) -> Terminal:
    try:
        return Terminal.model_validate(dict(socket.query_params))
    except ValidationError as error:
        first_error = error.errors()[0]
        raise RequestInvalid(f"{first_error['loc'][0]}: {first_error['msg']}") from None


def _node_of(control: Control, job: Job, rank: int) -> NodeId:
    attempt = control.world.attempts.get(job.id)
    if attempt is None or job.state not in ("STARTING", "RUNNING", "STOPPING"):
        raise Conflict(
            f"{job.spec.name} is {job.state}: there is nothing to attach to",
            hint=f"run: corral why {job.spec.name}",
        )
    for node in attempt.nodes:
        if rank in ranks_on(job.spec, attempt, node):
            return node
    raise NotFound("rank", str(rank), see=f"corral show {job.spec.name}")


async def _bridge_sockets(one: WebSocket, other: WebSocket) -> None:
    """Copy frames in both directions until either side closes. Then close both sockets;
    the person receives the exit code of the program that has ended."""
    pumps = {
        asyncio.create_task(_copy_frames(one, other)),
        asyncio.create_task(_copy_frames(other, one)),
    }
    closing = 1000
    try:
        done, tasks = await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        # it could not send: why, the other hears
        if None in [pump.result() for pump in done]:
            done |= (
                (await asyncio.wait(tasks, timeout=LAST_SECONDS))[0] if tasks else set()
            )
        codes = [pump.result() for pump in done]
        closing = (
            next((code for code in codes if exit_code_of(code) is not None), None)
            or closing
        )
    finally:
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)
        for socket in (one, other):
            with contextlib.suppress(RuntimeError, OSError, WebSocketDisconnect):
                await socket.close(closing)


async def _copy_frames(source: WebSocket, target: WebSocket) -> int | None:
    """Copy frames until one side closes. Return the close code; None if the connection
    broke off without one."""
    try:
        while True:
            await target.send_bytes(await frame_of(source))
    except WebSocketDisconnect as gone:
        return gone.code
    except (RuntimeError, OSError):
        return None
