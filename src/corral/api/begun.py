"""An answer that may have begun: then it can only be cut short."""

from starlette.types import Message, Send


class Begun:
    """Sends, and knows whether an answer has begun."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.begun = False

    async def __call__(self, message: Message) -> None:
        self.begun = True
        await self._send(message)
