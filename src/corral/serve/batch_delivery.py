"""Exchange of a batch's program with the head, through the gateway: it fetches its input,
reports its progress, and delivers its results."""

import json
import shutil
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from pathlib import Path
from typing import IO, Any, Final
from urllib.parse import urlsplit

from corral.serve.batch_answers import ERRORS, OUTPUT
from corral.serve.batch_progress import BatchProgress

TIMEOUT_SECONDS: Final = 60.0
REPORT_SECONDS: Final = 2.0
AGAIN_SECONDS: Final = (0.5, 15.0)  # least and most, between two tries
DELIVERY_SECONDS: Final = 3600.0  # after which another attempt of the job goes on
CANCELLING: Final = "cancelling"
_FOR_GOOD: Final = frozenset({400, 403, 404, 409, 410, 413, 422})


class HeadRefusedBatch(Exception):  # noqa: N818 - a refusal, as in domain.errors
    """The head refuses a request for good, such as of a batch that was removed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchDelivery:
    """Requests of one batch to the head.

    Args:
        gateway_url: Address of the gateway, which passes the requests on.
        key: Token of the job.
        is_over: Whether a request need not be tried any more.
    """

    gateway_url: str
    key: str
    batch: str
    is_over: Callable[[], bool] = lambda: False
    sleep: Callable[[float], None] = time.sleep

    def fetch_input(self, path: Path) -> None:
        """Write the input into a file. Raises: HeadRefusedBatch, OSError."""
        staged = path.with_name(f".{path.name}.part")

        def save(answer: HTTPResponse) -> None:
            with staged.open("wb") as file:
                shutil.copyfileobj(answer, file)
            if answer.length:
                raise ConnectionResetError("the input was cut short")

        self._retry("GET", "input", read=save)
        staged.replace(path)

    def report(self, progress: BatchProgress, tokens_left: float) -> str:
        """Send the progress once, and return the status of the batch. Raises: OSError,
        HTTPException, ValueError."""
        body = json.dumps({**asdict(progress), "tokens_left": tokens_left}).encode()
        headers = {"Content-Type": "application/json"}
        with closing(self._connection()) as connection:
            answer = self._send(connection, "POST", "progress", body, headers)
            text = answer.read()
        return str(json.loads(text)["status"]) if answer.status == 200 else ""

    def deliver(self, folder: Path) -> None:
        """Send the results in a folder: the answers and the errors, each unless there
        are none. Raises: HeadRefusedBatch, OSError."""
        for kind, name in (("error", ERRORS), ("output", OUTPUT)):
            path = folder / name
            if path.stat().st_size:
                self._retry("PUT", f"results/{kind}", path=path)

    def _retry(
        self,
        method: str,
        what: str,
        *,
        path: Path | None = None,
        read: Callable[[HTTPResponse], None] | None = None,
    ) -> None:
        """Send a request again and again until it succeeds.

        Raises: HeadRefusedBatch; ConnectionError after DELIVERY_SECONDS, or when it is
        over.
        """
        give_up_at = time.monotonic() + DELIVERY_SECONDS
        pause = AGAIN_SECONDS[0]
        while True:
            try:
                self._try(method, what, path, read)
                return
            except (OSError, HTTPException, ValueError) as error:
                if self.is_over() or time.monotonic() >= give_up_at:
                    raise ConnectionError(
                        f"the head cannot be reached: {error}"
                    ) from None
            self.sleep(pause)
            pause = min(AGAIN_SECONDS[1], 2 * pause)

    def _try(
        self,
        method: str,
        what: str,
        path: Path | None,
        read: Callable[[HTTPResponse], None] | None,
    ) -> None:
        with closing(self._connection()) as connection:
            if path is None:
                answer = self._send(connection, method, what, b"", {})
            else:
                size = str(path.stat().st_size)
                headers = {
                    "Content-Type": "application/jsonl",
                    "Content-Length": size,
                }
                with path.open("rb") as file:
                    answer = self._send(connection, method, what, file, headers)
            if answer.status == 200 and read is not None:
                read(answer)
                return
            text = answer.read()[:1000].decode(errors="replace")
            if answer.status in _FOR_GOOD:
                raise HeadRefusedBatch(text)
            if answer.status != 200:
                raise ConnectionError(f"{answer.status}: {text}")

    def _send(
        self,
        connection: HTTPConnection,
        method: str,
        what: str,
        body: bytes | IO[bytes],
        headers: dict[str, str],
    ) -> HTTPResponse:
        headers = {**headers, "Authorization": f"Bearer {self.key}"}
        path = f"/v1/batches/{self.batch}/{what}"
        connection.request(method, path, body or None, headers)
        return connection.getresponse()

    def _connection(self) -> HTTPConnection:
        address = urlsplit(self.gateway_url)
        host = address.hostname or ""
        if address.scheme == "https":
            context = ssl.create_default_context()
            return HTTPSConnection(
                host, address.port, timeout=TIMEOUT_SECONDS, context=context
            )
        return HTTPConnection(host, address.port, timeout=TIMEOUT_SECONDS)


@dataclass(slots=True)
class ProgressSender:
    """Thread that sends the newest progress, so that an absent head delays nothing.

    Attributes:
        status: Status of the batch, as the head has answered last.
    """

    delivery: BatchDelivery
    status: str = ""
    _newest: tuple[BatchProgress, float] | None = None
    _change: threading.Condition = field(default_factory=threading.Condition)
    _thread: Any = None

    def put(self, progress: BatchProgress, tokens_left: float) -> None:
        """Send this progress soon, unless a newer one replaces it."""
        with self._change:
            self._newest = progress, tokens_left
            self._change.notify()
        if self._thread is None:
            self._thread = threading.Thread(target=self._live, daemon=True)
            self._thread.start()

    def send_now(self, progress: BatchProgress, tokens_left: float) -> None:
        """Send this progress once."""
        # one that is lost is replaced by the next
        with suppress(OSError, HTTPException, ValueError, KeyError):
            self.status = self.delivery.report(progress, tokens_left) or self.status

    def _live(self) -> None:
        while True:
            with self._change:
                while self._newest is None:
                    self._change.wait()
                newest, self._newest = self._newest, None
            self.send_now(*newest)
            time.sleep(REPORT_SECONDS)
