"""An HTTP server for a small GPT, with the paths of OpenAI's API: `python -m
corral.serve.tiny --model FILE`. The same request always has the same answer."""

import argparse
import hmac
import json
import os
import secrets
import sys
from collections.abc import Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

from corral.serve.text_completion import (
    CHAT_PATH,
    TEXT_PATH,
    Completion,
    NextByte,
    RequestNotValid,
    text_request_of,
)

MOST_BODY_BYTES: Final = 10_000_000
IDLE_SECONDS: Final = 300.0
_EVENTS: Final = "text/event-stream; charset=utf-8"


class TinyServer(ThreadingHTTPServer):
    """Server of one model, with a thread for each connection.

    Args:
        next_byte: Function that returns the next byte of a text, at a temperature.
        names: Names of the model.
        key: Key that requests must have; "": none.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(
        self,
        address: tuple[str, int],
        *,
        next_byte: NextByte,
        names: Sequence[str],
        key: str,
    ) -> None:
        self.next_byte = next_byte
        self.names = names
        self.key = key
        super().__init__(address, TinyHandler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a client that has left; report other errors."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


class TinyHandler(BaseHTTPRequestHandler):
    """Requests of one connection."""

    server: TinyServer
    protocol_version = "HTTP/1.1"
    timeout = IDLE_SECONDS
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: Any) -> None:
        """Write no line for a request: the gateway counts them."""

    def do_GET(self) -> None:  # noqa: N802 - the name that the base class calls
        path = self.path.partition("?")[0]
        if path == "/health":
            self._send_json(HTTPStatus.OK, {"status": "ok"})
        elif path == "/v1/models" and self._has_key():
            models = [
                {"id": name, "object": "model", "created": 0, "owned_by": "corral"}
                for name in self.server.names
            ]
            self._send_json(HTTPStatus.OK, {"object": "list", "data": models})
        elif path != "/v1/models":
            self._refuse(HTTPStatus.NOT_FOUND, f"there is no page {path[:100]}")

    def do_POST(self) -> None:  # noqa: N802 - the name that the base class calls
        body = self._read_body()
        if body is None or not self._has_key():
            return
        path = self.path.partition("?")[0]
        if path not in (CHAT_PATH, TEXT_PATH):
            self._refuse(HTTPStatus.NOT_FOUND, f"there is no page {path[:100]}")
            return
        try:
            request = text_request_of(path, json.loads(body))
        except RequestNotValid as error:
            self._refuse(HTTPStatus.BAD_REQUEST, error.message, error.param)
            return
        except (ValueError, RecursionError):
            self._refuse(HTTPStatus.BAD_REQUEST, "the body is not valid JSON")
            return
        completion = Completion(request, self.server.next_byte, secrets.token_hex(12))
        if request.is_stream:
            self._send_stream(completion)
        else:
            self._send_json(HTTPStatus.OK, completion.whole())

    def _read_body(self) -> bytes | None:
        """Return the body; None if it was refused, and the connection is to end."""
        length = self.headers.get("Content-Length", "")
        if not length.isascii() or not length.isdigit():
            self.close_connection = True
            text = "the request needs a Content-Length"
            self._refuse(HTTPStatus.LENGTH_REQUIRED, text)
            return None
        if len(length) > 12 or int(length) > MOST_BODY_BYTES:
            self.close_connection = True
            text = f"the body has more than {MOST_BODY_BYTES:,} bytes"
            self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, text)
            return None
        return self.rfile.read(int(length))

    def _has_key(self) -> bool:
        """Return whether the request has the key; refuse it if not."""
        key = self.server.key
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if not key or hmac.compare_digest(token.encode(), key.encode()):
            return True
        self._refuse(HTTPStatus.UNAUTHORIZED, "the key is missing or wrong")
        return False

    def _refuse(
        self, status: HTTPStatus, message: str, param: str | None = None
    ) -> None:
        error = {"message": message, "type": "invalid_request_error", "param": param}
        self._send_json(status, {"error": {**error, "code": None}})

    def _send_json(self, status: HTTPStatus, answer: object) -> None:
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def _send_stream(self, completion: Completion) -> None:
        """Send the chunks of an answer as they are generated. A client that has left
        ends the generation."""
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", _EVENTS)
        self.send_header("Cache-Control", "no-cache")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for chunk in completion.chunks():
            self._send_event(json.dumps(chunk))
        self._send_event("[DONE]")
        self.wfile.write(b"0\r\n\r\n")

    def _send_event(self, text: str) -> None:
        event = f"data: {text}\n\n".encode()
        self.wfile.write(b"%x\r\n%b\r\n" % (len(event), event))


def main() -> None:
    """Serve the model of the command line until the process is stopped."""
    parser = argparse.ArgumentParser(prog="python -m corral.serve.tiny")
    parser.add_argument("--model", type=Path, required=True, help="file of weights")
    parser.add_argument("--host", default=os.environ.get("CORRAL_HOST", "127.0.0.1"))
    parser.add_argument(
        "--port", type=int, default=int(os.environ.get("CORRAL_PORT", "8000"))
    )
    parser.add_argument("--name", action="append", help="name of the model")
    parser.add_argument(
        "--api-key",
        default=os.environ.get("CORRAL_REPLICA_KEY", ""),
        help="key that requests must have",
    )
    options = parser.parse_args()

    from corral.serve.tiny_model import load_predictor  # torch takes seconds to load

    try:
        predictor = load_predictor(options.model)
    except (OSError, ValueError) as error:
        sys.exit(f"error: {error}")
    names = options.name or [options.model.stem]
    with TinyServer(
        (options.host, options.port),
        next_byte=predictor.next_byte,
        names=names,
        key=options.api_key,
    ) as server:
        host, port = server.server_address[:2]
        print(f"serving {', '.join(names)} on {host!s}:{port}", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
