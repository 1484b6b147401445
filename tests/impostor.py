"""A process that has taken a head's port: it answers in some way and keeps all that it
is sent."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

Answer = Callable[[bytes], bytes]


def closes(asked: bytes) -> bytes:
    return b""


def knows_nothing(asked: bytes) -> bytes:
    return _http(b"404 Not Found", b"{}")


def accepts(asked: bytes) -> bytes:
    return _http(b"200 OK", b'{"proof":"' + b"0" * 64 + b'","jobs":[]}')


def denies_the_token(asked: bytes) -> bytes:
    return _http(b"200 OK", b'{"proof":null}')


def upgrades(asked: bytes) -> bytes:
    return b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n"


def floods(asked: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000


def _http(status: bytes, body: bytes) -> bytes:
    return b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body)


class Impostor:
    """Serves until it is closed. `met` is set by each question."""

    def __init__(self, host: str, port: int, answer: Answer) -> None:
        self.taken = bytearray()
        self.met = threading.Event()
        self._answer = answer
        self._listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._listening.bind((host, port))
        self._listening.listen(64)
        self.host, self.port = self._listening.getsockname()[:2]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    def close(self) -> None:
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            with connection, suppress(OSError):
                connection.settimeout(0.2)
                while piece := connection.recv(65536):
                    self.taken += piece
                    answer = self._answer(piece)
                    self.met.set()
                    if not answer:
                        break
                    connection.sendall(answer)


@contextmanager
def impostor(host: str, port: int, answer: Answer) -> Iterator[Impostor]:
    made = Impostor(host, port, answer)
    try:
        yield made
    finally:
        made.close()


def relay_to(host: str, port: int) -> Answer:
    """Passes what it is asked on to a head that lives elsewhere."""

    def answer(asked: bytes) -> bytes:
        with socket.create_connection((host, port), 5.0) as head:
            head.sendall(asked)
            whole = b""
            while not whole.endswith(b"}") and (piece := head.recv(65536)):
                whole += piece
            return whole

    return answer
