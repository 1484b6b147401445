"""Large form, such as one with an audio file: it is held until its model is found, and
from then on it is passed on as it comes."""

from typing import Final, Protocol

from corral.gateway.access.callers import GatewayCaller
from corral.gateway.exchanges.exchange_admission import ExchangeHost, admit_exchange
from corral.gateway.framing.client_connection import (
    BODY_SILENCE_SECONDS,
    ClientConnection,
)
from corral.gateway.framing.form_scanner import FormScanner
from corral.gateway.framing.request_head import RequestHead
from corral.gateway.openai_errors import (
    GatewayCode,
    GatewayRefusal,
    HeadRefused,
    refused,
)
from corral.gateway.routing.exchange_targets import ExchangeTarget
from corral.gateway.routing.model_names import ModelTarget

# up to this size a form is read as a whole, so that any replica can get it again
WHOLE_FORM_BYTES: Final = 1024 * 1024


class FormHost(ExchangeHost, Protocol):
    """Parts of the gateway process that a form needs."""

    body_limit: int

    def find_model(self, model: str, caller: GatewayCaller, size: int) -> ModelTarget:
        """Return where the name of a model leads. Raises: HeadRefused."""

    def serve(self, client: ClientConnection, head: RequestHead, body: bytes) -> None:
        """Answer one whole request."""

    def reserve_bytes(self, size: int) -> None:
        """Reserve memory for a body. Raises: HeadRefused."""

    def release_bytes(self, size: int) -> None:
        """Release the memory of a body."""


class LargeForm:
    """One form whose model is still to be found.

    Args:
        length: Content-Length of the body; -1 for a chunked one.
    Raises: HeadRefused if the form is too large, or is not of a form's type.
    """

    __slots__ = (
        "_caller",
        "_client",
        "_gateway",
        "_head",
        "_length",
        "request_id",
        "_reserved",
        "_scanner",
        "body_limit",
    )

    def __init__(
        self,
        gateway: FormHost,
        client: ClientConnection,
        caller: GatewayCaller,
        head: RequestHead,
        length: int,
        request_id: bytes,
    ) -> None:
        self._gateway = gateway
        self._client = client
        self._caller = caller
        self._head = head
        self._length = length
        self.request_id = request_id
        self._scanner = FormScanner(head.content_type)
        self._reserved = 0
        self.body_limit = gateway.body_limit
        if length > self.body_limit:
            raise refused(
                GatewayCode.BODY_TOO_LARGE,
                f"a body has at most {self.body_limit} bytes",
            )

    def begin(self) -> None:
        """Begin, before the first part of the body."""
        self._client.await_body(BODY_SILENCE_SECONDS)

    def body_part(self, payload: bytes, *, is_done: bool) -> None:
        """Take the next part of the form."""
        self._client.await_body(BODY_SILENCE_SECONDS)
        try:
            self._gateway.reserve_bytes(len(payload))
            self._reserved += len(payload)
            self._scanner.feed(payload)
            if is_done:
                self._serve_whole()
            elif len(self._scanner.body) > WHOLE_FORM_BYTES and self._scanner.model:
                self._pass_on(self._scanner.model_name)
        except HeadRefused as error:
            self._leave()
            self._client.refuse_and_close(error.refusal, self.request_id)

    def _serve_whole(self) -> None:
        self._leave()
        self._gateway.serve(self._client, self._head, bytes(self._scanner.body))
        self._client.go_on()

    def _pass_on(self, model: str) -> None:
        """Begin the request to a replica, which takes the rest of the form."""
        size = len(self._scanner.body)
        target = self._gateway.find_model(model, self._caller, max(size, self._length))
        if target.adapter is not None:
            return  # the adapter may have to be loaded first
        body = bytes(self._scanner.body)
        if target.revision is not None:
            body = self._scanner.with_model(target.base)
        length = self._length
        if length >= 0:
            length += len(body) - size
        query = self._head.query
        exchange = admit_exchange(
            self._gateway,
            self._client,
            self._caller,
            self._head,
            ExchangeTarget(
                service=target.service,
                target=b"%b?%b" % (self._head.path, query)
                if query
                else self._head.path,
                revision=target.revision,
                is_engine=True,
            ),
            length,
            self.request_id,
        )
        self._leave()
        self._client.hand_body_to(exchange)
        exchange.begin()
        exchange.body_part(body, is_done=False)

    def _leave(self) -> None:
        self._client.stop_waiting()
        self._client.request = None
        self._gateway.release_bytes(self._reserved)
        self._reserved = 0

    def body_refused(self, refusal: GatewayRefusal) -> None:
        """End the work: the body is not valid."""
        self._leave()

    def pause(self) -> None:
        """Nothing is written before the form has ended."""

    def resume(self) -> None:
        """Nothing is written before the form has ended."""

    def client_gone(self) -> None:
        """Release what was held: the client has left."""
        self._leave()
