"""Two nodes that check their link know each other by the head's secret, and nobody
else."""

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from corral.agent.checks.link_handshake import NotProven, accepted, dialled, greet

SECRET = "s" * 64


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as made:
        yield made


def dials(server: socket.socket, secret: str) -> socket.socket:
    return dialled(server.getsockname()[:2], secret, 10.0)


def test_who_does_not_know_the_secret_takes_no_place_and_the_true_one_does(
    server: socket.socket,
) -> None:
    found: list[socket.socket] = []

    def follow() -> None:
        silent = socket.create_connection(server.getsockname()[:2])
        rude = socket.create_connection(server.getsockname()[:2])
        rude.sendall(b"GET / HTTP/1.1\r\n\r\n" * 8)
        with suppress(OSError):
            dials(server, "another secret")
        found.append(dials(server, SECRET))
        silent.close()
        rude.close()

    thread = threading.Thread(target=follow)
    thread.start()
    talk = accepted(server, SECRET, 30.0)
    thread.join()
    talk.sendall(b"!")
    assert found[0].recv(1) == b"!"
    talk.close()
    found[0].close()


def test_a_listener_that_does_not_know_the_secret_is_found_out(
    server: socket.socket,
) -> None:
    def pretend() -> None:
        talk, _ = server.accept()
        with talk, suppress(OSError):
            greet(talk, "a guess", leads=True)

    thread = threading.Thread(target=pretend)
    thread.start()
    with pytest.raises(NotProven):
        dials(server, SECRET)
    thread.join()


def test_a_proof_sent_back_to_its_sender_proves_nothing(server: socket.socket) -> None:
    def mirror() -> None:
        talk, _ = server.accept()
        with talk, suppress(OSError):
            while piece := talk.recv(4096):
                talk.sendall(piece)

    thread = threading.Thread(target=mirror)
    thread.start()
    with pytest.raises(NotProven):
        dials(server, SECRET)
    thread.join(timeout=10)
