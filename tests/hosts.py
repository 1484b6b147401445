"""Hosts for tests: network namespaces of this machine on a switch of their own, each
with its own address, ports and way to the others. They share the disk, the kernel and
the clock.

A cut is silent: packets go to a card that nobody has, as behind a switch that has
failed.
"""

import ctypes
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final

import pytest

NETWORK: Final = "10.77.0"
NOBODY: Final = "02:00:00:00:00:fe"
_NETWORK: Final = 0x40000000  # CLONE_NEWNET
_numbers: Final = count()


def need_hosts() -> None:
    """Skip where no network namespaces can be made; under CI=true that is a failure."""
    if os.geteuid() == 0 and shutil.which("ip") and shutil.which("nsenter"):
        return
    why = "hosts are network namespaces: they need root, ip and nsenter"
    if os.environ.get("CI") == "true":
        pytest.fail(why)
    pytest.skip(why)


@dataclass(frozen=True, slots=True)
class Host:
    """One host. `space` is the file of its network namespace."""

    name: str
    address: str
    space: str

    @property
    def enter(self) -> list[str]:
        """What comes before a command line that is to run there."""
        return ["nsenter", f"--net={self.space}"]

    def run(
        self, words: Sequence[str], *, env: Mapping[str, str] | None = None, **more: Any
    ) -> "subprocess.CompletedProcess[str]":
        """Run it there to its end."""
        return subprocess.run(
            [*self.enter, *words], env=env, capture_output=True, text=True, **more
        )

    def thread(self) -> ThreadPoolExecutor:
        """One thread of this process that is on the host: what it opens, it opens from
        there."""

        def enter() -> None:
            libc = ctypes.CDLL(None, use_errno=True)
            with open(self.space) as space:
                assert libc.setns(space.fileno(), _NETWORK) == 0, os.strerror(
                    ctypes.get_errno()
                )

        return ThreadPoolExecutor(1, initializer=enter)

    def start(self, words: Sequence[str], **more: Any) -> "subprocess.Popen[bytes]":
        """Start it there; whoever asks for it ends it."""
        return subprocess.Popen([*self.enter, *words], **more)


@dataclass(slots=True)
class Hosts:
    """All of them, by name, and what lies between them."""

    by_name: dict[str, Host] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Host:
        return self.by_name[name]

    def cut(self, source: str, target: str) -> None:
        """Nothing that `source` sends reaches `target` any more; the other way
        stays."""
        self._neighbour("replace", source, target, "lladdr", NOBODY, "nud", "permanent")

    def heal(self, source: str, target: str) -> None:
        self._neighbour("del", source, target)

    @contextmanager
    def parted(self, one: str, other: str) -> Iterator[None]:
        """Neither hears the other meanwhile."""
        self.cut(one, other)
        self.cut(other, one)
        try:
            yield
        finally:
            self.heal(one, other)
            self.heal(other, one)

    def _neighbour(self, verb: str, source: str, target: str, *words: str) -> None:
        host, address = self[source], self[target].address
        _ip(*["neigh", verb, address, "dev", "eth0", *words], inside=host.space)


@contextmanager
def hosts(*names: str) -> Iterator[Hosts]:
    """So many hosts; nothing of them is left afterwards. What runs there has ended by
    then."""
    need_hosts()
    mark = f"ct{os.getpid()}-{next(_numbers)}"
    made = Hosts()
    with ExitStack() as stack:
        switch = stack.enter_context(_space(f"{mark}-s"))
        _ip("link", "add", "switch", "type", "bridge", inside=switch)
        _ip("link", "set", "switch", "up", inside=switch)
        for number, name in enumerate(names, start=1):
            space = stack.enter_context(_space(f"{mark}-{number}"))
            host = Host(name, f"{NETWORK}.{number}", space)
            _plug_in(host, switch, f"p{number}")
            made.by_name[name] = host
        yield made


@contextmanager
def _space(name: str) -> Iterator[str]:
    _ip("netns", "add", name)
    try:
        yield f"/run/netns/{name}"
    finally:
        _ip("netns", "del", name)


def _plug_in(host: Host, switch: str, port: str) -> None:
    own, there = os.path.basename(host.space), os.path.basename(switch)
    _ip(
        "link",
        "add",
        port,
        "netns",
        there,
        "type",
        "veth",
        "peer",
        "eth0",
        "netns",
        own,
    )
    _ip("link", "set", port, "master", "switch", "up", inside=switch)
    _ip("address", "add", f"{host.address}/24", "dev", "eth0", inside=host.space)
    for link in ("lo", "eth0"):
        _ip("link", "set", link, "up", inside=host.space)


def _ip(*words: str, inside: str | None = None) -> None:
    enter = [] if inside is None else ["nsenter", f"--net={inside}"]
    done = subprocess.run([*enter, "ip", *words], capture_output=True, text=True)
    assert done.returncode == 0, f"ip {' '.join(words)}: {done.stderr}"
