"""Answer to one request, written to the connection of its client."""

from typing import Protocol

from corral.gateway.answer_framing import AnswerHead
from corral.gateway.answer_text import chunk, open_answer, whole_answer
from corral.gateway.client_connection import ClientConnection
from corral.gateway.openai_errors import GatewayRefusal, render_refusal
from corral.gateway.request_head import RequestHead


class AnswerHost(Protocol):
    """State of the gateway process that decides whether connections stay open."""

    is_draining: bool


class ClientAnswer:
    """Writer of one answer."""

    __slots__ = ("_client", "_head", "_host", "_request_id")

    def __init__(
        self,
        host: AnswerHost,
        client: ClientConnection,
        head: RequestHead,
        request_id: bytes,
    ) -> None:
        self._host = host
        self._client = client
        self._head = head
        self._request_id = request_id

    @property
    def keeps_alive(self) -> bool:
        """Whether the connection takes another request after this answer."""
        head = self._head
        return head.keeps_alive and not head.is_http10 and not self._host.is_draining

    def begin(self, head: AnswerHead) -> None:
        """Write the head of an answer whose length is not known."""
        text = open_answer(
            head,
            self._request_id,
            is_chunked=not self._head.is_http10,
            closes=not self.keeps_alive,
        )
        self._client.write(text)

    def add(self, payload: bytes, *, is_last: bool) -> None:
        """Write a part of the body."""
        is_chunked = not self._head.is_http10
        self._client.write(chunk(payload, is_last=is_last) if is_chunked else payload)

    def write_whole(self, head: AnswerHead, body: bytes) -> None:
        closes = not self.keeps_alive
        self._client.write(whole_answer(head, self._request_id, body, closes=closes))

    def refuse(self, refusal: GatewayRefusal) -> None:
        closes = not self.keeps_alive
        self._client.write(
            render_refusal(refusal, closes=closes, request_id=self._request_id)
        )

    def end(self, *, keeps_alive: bool) -> None:
        """Go on with the client's next request, or close the connection."""
        self._client.request_done(keeps_alive=keeps_alive)
