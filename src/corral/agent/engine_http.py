"""HTTP requests from an agent to the engine of a replica on its node."""

import asyncio
from typing import Final

MOST_ANSWER_BYTES: Final = 1_000_000


async def request_engine(
    host: str, port: int, key: str, method: str, path: str, body: str = ""
) -> tuple[int, bytes]:
    """Return the status and the body of an answer.

    Raises: OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError.
    """
    reader, writer = await asyncio.open_connection(host, port)
    try:
        length = len(body.encode())
        writer.write(_head(host, port, key, method, path, length) + body.encode())
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        words = head.split(" ", 2)
        if not head.startswith("http/") or len(words) < 2:
            raise ValueError("the answer is not HTTP")
        return int(words[1][:3]), await _body_of(reader, head)
    finally:
        writer.close()


def _head(host: str, port: int, key: str, method: str, path: str, length: int) -> bytes:
    host = f"[{host}]" if ":" in host else host
    lines = (
        f"{method} {path} HTTP/1.1",
        f"Host: {host}:{port}",
        f"Authorization: Bearer {key}",
        "Content-Type: application/json",
        f"Content-Length: {length}",
        "User-Agent: corral-agent",
        "Connection: close",
    )
    return "".join(f"{line}\r\n" for line in (*lines, "")).encode()


async def _body_of(reader: asyncio.StreamReader, head: str) -> bytes:
    """Return the body of an answer. Raises: ValueError, asyncio.IncompleteReadError."""
    headers = dict(
        (name.strip(), value.strip())
        for name, _, value in (line.partition(":") for line in head.split("\r\n")[1:])
    )
    if "chunked" not in headers.get("transfer-encoding", ""):
        length = int(headers.get("content-length", MOST_ANSWER_BYTES))
        if length < MOST_ANSWER_BYTES and "content-length" in headers:
            return await reader.readexactly(length)
        return await reader.read(MOST_ANSWER_BYTES)
    body = bytearray()
    while len(body) < MOST_ANSWER_BYTES:
        size = int((await reader.readuntil(b"\r\n")).split(b";")[0], 16)
        if not size:
            break
        if size > MOST_ANSWER_BYTES:
            raise ValueError("the answer is too long")
        body += (await reader.readexactly(size + 2))[:-2]
    return bytes(body)
