"""Heads on two hosts, each with a certificate of its own making: whoever trusts one
trusts both."""

import json
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pytest

import corral
from tests.hosts import hosts
from tests.patience import PATIENCE_SECONDS
from tests.postgres import server
from tests.scenarios.house import House, until
from tests.scenarios.machines import Machine

pytestmark = pytest.mark.xdist_group("machines")
T = TypeVar("T")


@dataclass(slots=True)
class Two:
    """Heads a and b on hosts of these names; a is up first, and leads."""

    a: Machine
    b: Machine
    caller: ThreadPoolExecutor  # on a third host

    def call(self, *urls: str, ask: Callable[[corral.Client], T]) -> T:
        """Ask the heads there, in the name of the admin of a."""

        def asked() -> T:
            token = (self.a.root / "token").read_text().strip()
            with corral.Client(url=",".join(urls), token=token) as client:
                return ask(client)

        return self.caller.submit(asked).result(PATIENCE_SECONDS)


def url_of(machine: Machine) -> str:
    return str(json.loads(House(machine.root).place.head_json.read_text())["url"])


@contextmanager
def two_heads(folder: Path) -> Iterator[Two]:
    with ExitStack() as stack:
        database = stack.enter_context(server())
        made = stack.enter_context(hosts("a", "b", "c"))
        caller = stack.enter_context(made["c"].thread())
        a, b = (Machine(made[name], folder / name) for name in ("a", "b"))
        store = folder / "store"
        store.touch(mode=0o600)
        store.write_text(database.database())
        stack.callback(_end, folder)
        for one in (a, b):
            words = [
                "--store-file",
                str(store),
                "--shared-state",
                str(folder / "state"),
            ]
            words += ["--host", one.host.address, "--name", one.host.name]
            one.ok(
                "up",
                *words,
                "--nodes",
                "1",
                "--gpus",
                "0",
                "--key-file",
                str(folder / "key"),
            )
        yield Two(a, b, caller)


def _end(folder: Path) -> None:
    for pid in House(folder).processes():
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    until(lambda: not House(folder).processes(), "all has ended")


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> Iterator[Two]:
    folder = Path(tempfile.mkdtemp(prefix="corral-tls-"))
    try:
        with two_heads(folder) as made:
            monkeypatch.setenv("CORRAL_CA", str(made.a.root / "ca.pem"))
            yield made
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def test_over_tls_a_standby_passes_on_and_takes_over_for_those_who_trust_the_first(
    two: Two,
) -> None:
    a, b = url_of(two.a), url_of(two.b)
    assert a.startswith("https://"), a
    assert b.startswith("https://"), b
    spec = {"name": "first", "run": "echo by the standby", "resources": {"cpu": 0.01}}
    first = two.call(b, ask=lambda client: client.submit(spec)[0].id)
    until(
        lambda: two.call(b, ask=lambda client: client.job(first)).state == "DONE",
        "it is done",
    )
    assert two.call(b, ask=lambda client: client.status()).head.url == a
    os.kill(House(two.a.root).head_pid(), signal.SIGKILL)
    both = (a, b)
    until(lambda: leads(two, both, b), "b leads, and is found by who names both")
    second = two.call(
        *both, ask=lambda client: client.submit({**spec, "name": "second"})[0].id
    )
    until(
        lambda: two.call(*both, ask=lambda c: c.job(second)).state == "DONE",
        "it is done",
    )
    until(
        lambda: all(heard(two, both)),
        "the agents of both machines talk with b over TLS",
    )


def leads(two: Two, urls: tuple[str, ...], url: str) -> bool:
    with suppress(corral.CorralError):
        return two.call(*urls, ask=lambda client: client.status()).head.url == url
    return False


def heard(two: Two, urls: tuple[str, ...]) -> list[bool]:
    nodes = two.call(*urls, ask=lambda client: client.nodes())
    assert {node.id for node in nodes} == {"a-n1", "b-n1"}
    return [node.has_heartbeat and node.liveness == "alive" for node in nodes]
