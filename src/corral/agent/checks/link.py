"""Check of the link between two nodes: an all-reduce over one GPU of each node, or a
substitute.

The leader listens, the other node connects, and both authenticate. Each node sends what
it supports, and both use the best method that both support: NCCL on GPUs, gloo on CPUs,
or without PyTorch a plain stream of bytes.
"""

import json
import socket
import time
from collections.abc import Iterator, Sequence
from typing import Final

from corral.agent.checks.link_handshake import NotProven, accepted, dialled
from corral.agent.checks.messages import BYTES_PER_SECOND, CheckFinding
from corral.agent.checks.rates import rate_text
from corral.agent.checks.torch_checks import (
    MISSING,
    NO_CUDA,
    NoProof,
    has_gpu_build,
    has_torch,
    proven,
    visible,
)
from corral.domain.active_checks import CheckKind, CheckUp
from corral.domain.resources import Gpu

MEET_SECONDS: Final = 20.0
BY: Final = ("nccl", "gloo", "stream")  # the best first
CHUNK_BYTES: Final = 1024 * 1024
LONGEST_LINE: Final = 4096


def check_link(checkup: CheckUp, gpus: Sequence[Gpu]) -> Iterator[CheckFinding]:
    """Measure the link to the peer of this check-up, and yield one finding about it."""
    link_endpoint, peer = (checkup.address, checkup.port), checkup.peer
    try:
        with _connect_to_peer(checkup, link_endpoint) as talk:
            backend = _negotiate_backend(talk, gpus)
            rate = _measure_stream_rate(talk, checkup) if backend == "stream" else None
        if rate is None:
            rate = _measure_all_reduce(checkup, backend, gpus)
    except (OSError, ValueError, NoProof) as trouble:
        where = f"{link_endpoint[0]} port {link_endpoint[1]}"
        text = f"the link test with node {peer} at {where} failed: {trouble}"
        yield CheckFinding(kind=CheckKind.LINK, device=peer, text=text, failed=True)
        return
    how = {
        "nccl": "NCCL, one GPU on each node",
        "gloo": "gloo on CPUs",
        "stream": "a TCP stream",
    }[backend]
    if backend != "nccl" and gpus:
        how += f"; GPUs are not used: {_why_not() or f'{peer} cannot use NCCL'}"
    unit = BYTES_PER_SECOND if backend == "nccl" else f"{BYTES_PER_SECOND} by {backend}"
    text = f"link with node {peer}: {rate_text(rate)} ({how})"
    yield CheckFinding(
        kind=CheckKind.LINK, device=peer, text=text, value=rate, unit=unit
    )


def _connect_to_peer(checkup: CheckUp, here: tuple[str, int]) -> socket.socket:
    """Return a connection to the peer. The leader listens at the address `here`; the
    other node connects to it.

    Raises: OSError when no connection comes up in time.
    """
    if checkup.leads:
        family = socket.AF_INET6 if ":" in here[0] else socket.AF_INET
        with socket.create_server(here, family=family) as server:
            talk = accepted(server, checkup.secret, MEET_SECONDS)
        talk.settimeout(MEET_SECONDS)
        return talk
    deadline = time.monotonic() + MEET_SECONDS
    while True:
        try:
            return dialled(here, checkup.secret, MEET_SECONDS)
        except NotProven:
            raise
        except ConnectionError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def _negotiate_backend(talk: socket.socket, gpus: Sequence[Gpu]) -> str:
    """Return the backend that both ends support. Raises: OSError, ValueError."""
    torch, nccl = has_torch(), bool(gpus) and has_gpu_build()
    own_methods = [
        backend
        for backend in BY
        if backend == "stream" or (torch and (backend == "gloo" or nccl))
    ]
    talk.sendall(json.dumps(own_methods).encode() + b"\n")
    line = bytearray()
    while not line.endswith(b"\n") and len(line) < LONGEST_LINE:
        piece = talk.recv(1)
        if not piece:
            raise ConnectionError("the other node closed the connection")
        line += piece
    peer_methods = json.loads(line)
    return next(backend for backend in own_methods if backend in peer_methods)


def _why_not() -> str:
    """Return the reason why this node cannot use NCCL on its GPUs; "" if it can."""
    if not has_torch():
        return MISSING
    return "" if has_gpu_build() else NO_CUDA


def _measure_stream_rate(talk: socket.socket, checkup: CheckUp) -> float:
    """Measure the speed of a stream from the leader to the other node, in bytes/s, as
    the receiver measures it.

    Raises: OSError when the connection fails.
    """
    if checkup.leads:
        chunk, deadline = bytes(CHUNK_BYTES), time.monotonic() + checkup.seconds
        while time.monotonic() < deadline:
            talk.sendall(chunk)
        talk.shutdown(socket.SHUT_WR)
        return float(talk.makefile("rb").readline(LONGEST_LINE))
    received_bytes, began = 0, time.monotonic()
    while piece := talk.recv(CHUNK_BYTES):
        received_bytes += len(piece)
    rate = received_bytes / max(time.monotonic() - began, 1e-9)
    talk.sendall(f"{rate}\n".encode())
    return rate


def _measure_all_reduce(checkup: CheckUp, by: str, gpus: Sequence[Gpu]) -> float:
    """Measure the rate of an all-reduce between the two nodes with the backend `by`,
    for example NCCL.

    Raises: NoProof when the check process gives no result.
    """
    rank, device = ("0" if checkup.leads else "1"), "cuda:0" if by == "nccl" else "cpu"
    rendezvous_args = [
        rank,
        "2",
        checkup.address,
        f"{checkup.port}",
        by,
        f"{checkup.seconds}",
        device,
    ]
    (outcome,) = proven(
        ["all-reduce", *rendezvous_args], checkup.seconds, visible(gpus[:1])
    )
    if not outcome["right"]:
        raise NoProof("the all-reduce gave a wrong result")
    return float(outcome["bytes_per_second"])
