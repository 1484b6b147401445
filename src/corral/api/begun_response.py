"""Record of whether an answer has begun. An answer that has begun can only be cut
short."""

from starlette.types import Message, Send


class Begun:
    """ASGI `send` function that records whether an answer has begun."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.begun = False
        # that the answer has besides its own
        self.headers: list[tuple[bytes, bytes]] = []
        self.answer_bytes = 0  # as announced; 0 for a stream

    async def __call__(self, message: Message) -> None:
        self.begun = True
        if message["type"] == "http.response.start":
            for name, value in message.get("headers", ()):
                if name == b"content-length":
                    self.answer_bytes = int(value)
            if self.headers:
                message = {
                    **message,
                    "headers": [*message.get("headers", ()), *self.headers],
                }
        await self._send(message)
