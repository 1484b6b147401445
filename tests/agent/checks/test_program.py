"""The checks themselves, done for real on this machine, and each broken once."""

import hashlib
import importlib.machinery
import os
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import pytest

from corral.agent.checks import data, disk, gpus, link, torch_checks
from corral.agent.checks.clock import check_clock
from corral.agent.checks.data import check_data, listed
from corral.agent.checks.disk import check_disk
from corral.agent.checks.gpus import check_gpus
from corral.agent.checks.link import check_link
from corral.agent.checks.messages import CheckFinding, CheckRequest
from corral.domain.active_checks import CheckKind, CheckUp
from corral.domain.ids import NodeId
from corral.domain.matmul_checksums import KNOWN, WIDE, answer
from corral.domain.resources import Gpu
from tests.agent.bench import settings_in
from tests.agent.nodes import name_of
from tests.patience import PATIENCE_SECONDS

ALONE = (CheckKind.MATMUL, CheckKind.MEMORY, CheckKind.ALL_REDUCE)
GPUS = tuple(
    Gpu(index=at, uuid=f"GPU-{at}", type="h100", memory_bytes=80) for at in range(2)
)


def ask(*kinds: CheckKind, on: tuple[Gpu, ...] = ()) -> CheckRequest:
    checkup = CheckUp(
        id="1", kinds=kinds or ALONE, by="ada", at=0.0, until=1.0, seconds=0.05
    )
    return CheckRequest(checkup=checkup, node="n1", gpus=on)


def test_the_known_hash_is_that_of_the_product_in_plain_python() -> None:
    found = list(answer(WIDE, 64, 64))
    digest = hashlib.sha256(struct.pack("<4096i", *found)).hexdigest()
    assert digest == KNOWN[WIDE, 64, 64]
    found[17] += 1
    assert hashlib.sha256(struct.pack("<4096i", *found)).hexdigest() != digest


def test_a_machine_without_a_gpu_computes_on_its_cpu_and_says_so() -> None:
    product, memory = check_gpus(ask())
    assert product.failed is False
    assert product.gpu is None
    assert "CPU" in product.text
    assert memory.unit == "B/s on CPU"
    assert (memory.value or 0) > 1e6


def test_without_numpy_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "find_spec", lambda name: None)
    (product,) = check_gpus(ask(CheckKind.MATMUL))
    assert product.failed is False
    assert "(Python)" in product.text


def test_a_cpu_that_multiplies_wrongly_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gpus, "hash_by_numpy", lambda side: "0" * 64)
    (product,) = check_gpus(ask(CheckKind.MATMUL))
    assert product.failed is True
    assert "silent data corruption" in product.text


# -- GPUs, as PyTorch's process tells of them ----------------------------------------------------


def proving(monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """In place of the process that has PyTorch: a shell with the same words."""
    monkeypatch.setattr(torch_checks, "COMMAND", ("/bin/sh", "-c", script))
    monkeypatch.setattr(gpus, "has_torch", lambda: True)
    monkeypatch.setattr(gpus, "has_gpu_build", lambda: True)


def test_wrong_products_and_errors_are_those_of_their_gpu(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines = (
        '{"kind": "matmul", "device": "cuda:0", "wrong": 3, "made": 900}',
        '{"kind": "matmul", "device": "cuda:1", "wrong": 0, "made": 900}',
        '{"kind": "memory", "device": "cuda:1", "bytes_per_second": 3e12}',
        '{"kind": "memory", "device": "cuda:0", "error": "CUDA error: an illegal address"}',
    )
    proving(monkeypatch, f"printf '%s\\n' {' '.join(repr(line) for line in lines)}")
    found = list(check_gpus(ask(CheckKind.MATMUL, CheckKind.MEMORY, on=GPUS)))
    assert [(one.kind, one.gpu, one.failed, one.value) for one in found] == [
        ("matmul", 0, True, None),
        ("matmul", 1, False, None),
        ("memory", 1, None, 3e12),
        ("memory", 0, True, None),
    ]


def test_a_gpu_that_hangs_has_failed_and_one_that_cannot_be_used_was_not_checked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch_checks, "START_SECONDS", 0.05)
    proving(monkeypatch, "exec sleep 600")
    hung = list(check_gpus(ask(CheckKind.MATMUL, on=GPUS)))
    assert [(one.failed, one.ran) for one in hung] == [(True, True)] * 2
    proving(monkeypatch, "echo 'Torch not compiled with CUDA enabled' >&2; exit 1")
    unusable = list(check_gpus(ask(CheckKind.MATMUL, on=GPUS)))
    assert [(one.failed, one.ran) for one in unusable] == [(None, False)] * 2
    assert "not compiled with CUDA" in unusable[0].text


def test_without_pytorch_nothing_is_said_of_a_gpu_but_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gpus, "has_torch", lambda: False)
    found = list(check_gpus(ask(CheckKind.MATMUL, on=GPUS)))
    assert [one.ran for one in found] == [False, False]
    assert "pip install 'corral[train]'" in found[0].text


def test_a_pytorch_without_cuda_says_so_and_condemns_no_gpu(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    proving(monkeypatch, "echo 'Torch not compiled with CUDA enabled' >&2; exit 1")
    monkeypatch.setattr(gpus, "has_gpu_build", lambda: False)
    found = list(check_gpus(ask(CheckKind.MATMUL, CheckKind.ALL_REDUCE, on=GPUS)))
    assert [(one.kind, one.failed, one.ran) for one in found] == [
        ("matmul", None, False)
    ] * 2
    assert "without CUDA" in found[0].text


@pytest.mark.parametrize(
    ("written", "is_for_gpus"),
    [
        ("cuda: Optional[str] = None\nhip: Optional[str] = None\n", False),
        ("cuda: Optional[str] = '12.8'\nhip: Optional[str] = None\n", True),
        ("cuda = None\nhip = '6.4.43482'\n", True),
        (None, True),
    ],
)
def test_whether_pytorch_is_for_gpus_is_read_and_not_imported(
    written: str | None,
    is_for_gpus: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    package = tmp_path / "torch"
    package.mkdir()
    (package / "__init__.py").write_text("raise AssertionError('it was imported')")
    if written is not None:
        (package / "version.py").write_text(written)
    spec = importlib.machinery.PathFinder.find_spec("torch", [str(tmp_path)])
    monkeypatch.setattr(torch_checks, "find_spec", lambda name: spec)
    assert torch_checks.has_gpu_build() is is_for_gpus


def test_the_slowest_rank_is_the_rate_of_all_and_a_wrong_sum_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said = """printf '{"bytes_per_second": %s, "right": %s}\\n'"""
    proving(monkeypatch, f"{said} $(( ($1 + 1) * 100 )) true")
    (found,) = check_gpus(ask(CheckKind.ALL_REDUCE, on=GPUS))
    assert (found.failed, found.value) == (None, 100.0)
    proving(monkeypatch, f"{said} 100 false")
    (wrong,) = check_gpus(ask(CheckKind.ALL_REDUCE, on=GPUS))
    assert wrong.failed is True


# -- disks and data ------------------------------------------------------------------------------


def test_a_disk_is_written_and_read_and_nothing_is_left_on_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk, "MOST_BYTES", 8 * 1024 * 1024)
    found = check_disk(str(tmp_path), 5.0, own=True)
    assert found.failed is None
    assert (found.value or 0) > 0
    assert found.unit == "B/s"
    assert check_disk(str(tmp_path), 5.0, own=False).unit == "B/s shared"
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_gives_back_something_else_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk, "MOST_BYTES", 8 * 1024 * 1024)
    real = os.pread

    def bad(descriptor: int, size: int, at: int) -> bytes:
        chunk = real(descriptor, size, at)
        return chunk if at else bytes([chunk[0] ^ 1]) + chunk[1:]

    monkeypatch.setattr(os, "pread", bad)
    found = check_disk(str(tmp_path), 5.0, own=True)
    assert found.failed is True
    assert "differs from the data that was written" in found.text


def test_a_disk_that_cannot_be_written_has_failed(tmp_path: Path) -> None:
    found = check_disk(str(tmp_path / "gone"), 1.0, own=True)
    assert found.failed is True
    assert "No such file" in found.text


def test_a_folder_of_data_is_listed_alike_and_read(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    for name, size in (("a/one", 100), ("two", 2 * 1024 * 1024), ("a/three", 5000)):
        (tmp_path / name).write_bytes(b"x" * size)
    whole, small, large = check_data(str(tmp_path), 5.0)
    assert (whole.value, whole.failed) == (3.0, False)
    assert small.device.endswith("small files")
    assert large.device.endswith("large files")
    assert (large.value or 0) > 0
    before = listed(str(tmp_path)).digest
    assert listed(str(tmp_path)).digest == before
    (tmp_path / "a" / "one").write_bytes(b"x" * 101)
    assert listed(str(tmp_path)).digest != before


def test_of_many_files_the_first_are_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data, "MOST_FILES", 3)
    for number in range(5):
        (tmp_path / f"f{number}").write_text("x")
    found = listed(str(tmp_path))
    assert [name for name, _ in found.files] == ["f0", "f1", "f2"]
    assert not found.whole


@pytest.mark.parametrize("make", [lambda path: None, lambda path: path.mkdir()])
def test_a_folder_that_is_not_there_or_is_empty_fails(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    make(tmp_path / "set")
    (found,) = check_data(str(tmp_path / "set"), 1.0)
    assert found.failed is True
    assert found.value == (0.0 if (tmp_path / "set").exists() else None)


def test_a_folder_below_that_is_closed_is_told_and_hides_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("closed", "open"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_bytes(b"x")
    scan = os.scandir

    def guarded(path: str) -> object:  # root, who runs tests, may read all
        if path.rstrip("/").endswith("closed"):
            raise PermissionError(13, "Permission denied", path)
        return scan(path)

    monkeypatch.setattr(os, "scandir", guarded)
    whole, _ = check_data(str(tmp_path), 1.0)
    assert (whole.value, whole.failed) == (1.0, False)
    assert "1 folder not readable" in whole.text
    with pytest.raises(PermissionError):
        listed(str(tmp_path / "closed"))


def test_the_clock_is_told_or_that_it_is_not_known() -> None:
    assert check_clock(-0.25).value == -0.25
    assert not check_clock(None).ran


# -- links ---------------------------------------------------------------------------------------


def linked(seconds: float = 0.1, *, on: Sequence[Gpu] = ()) -> list[CheckFinding]:
    """What both ends find, each with these GPUs."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    found: list[CheckFinding] = []

    def end(name: str, other: str, leads: bool) -> None:
        checkup = CheckUp(
            id="1", kinds=(CheckKind.LINK,), by="ada", at=0.0, until=1.0, seconds=seconds,
            peer=NodeId(other), leads=leads, address="127.0.0.1", port=port,
        )  # fmt: skip
        found.extend(check_link(checkup, on))

    ends = [
        threading.Thread(target=end, args=("a", "b", True)),
        threading.Thread(target=end, args=("b", "a", False)),
    ]
    for one in ends:
        one.start()
    for one in ends:
        one.join()
    return sorted(found, key=lambda one: one.device)


def test_two_nodes_without_pytorch_stream_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(link, "has_torch", lambda: False)
    first, second = linked()
    assert [first.device, second.device] == ["a", "b"]
    assert first.value == second.value
    assert (first.value or 0) > 1e5
    assert first.unit == "B/s by stream"


def test_a_link_to_nobody_fails_at_its_other_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(link, "MEET_SECONDS", 0.05)
    checkup = CheckUp(
        id="1", kinds=(CheckKind.LINK,), by="ada", at=0.0, until=1.0, peer=NodeId("n2"),
        leads=True, address="127.0.0.1", port=0,
    )  # fmt: skip
    (found,) = check_link(checkup, ())
    assert (found.failed, found.device) == (True, "n2")


@pytest.mark.train
def test_two_nodes_with_pytorch_add_up_by_gloo() -> None:
    first, second = linked()
    assert first.unit == second.unit == "B/s by gloo"
    assert first.value == second.value


@pytest.mark.train
def test_nodes_with_gpus_whose_pytorch_has_no_cuda_add_up_by_gloo_and_say_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(link, "has_gpu_build", lambda: False)
    first, second = linked(on=GPUS)
    assert first.unit == second.unit == "B/s by gloo"
    assert "GPUs are not used: PyTorch was built without CUDA" in first.text


def test_a_check_ends_with_its_agent(tmp_path: Path) -> None:
    settings_in(tmp_path)
    (tmp_path / "pretend.json").write_text('{"checks": {"seconds": 600}}')
    (tmp_path / "ask").write_bytes(
        msgspec.json.encode(ask(CheckKind.MATMUL, on=GPUS)) + b"\n"
    )
    agent = subprocess.Popen(
        [sys.executable, "-c", AGENT, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert agent.stdout is not None
    pid = int(agent.stdout.readline())
    until_named(pid, "corral-checks")
    agent.kill()
    agent.wait()
    agent.stdout.close()
    until_named(pid, "")


AGENT = """import subprocess, sys, time
command = [sys.executable, "-m", "corral.agent.checks.process", sys.argv[1]]
child = subprocess.Popen(command, stdin=open(sys.argv[1] + "/ask"), stdout=subprocess.DEVNULL)
print(child.pid, flush=True)
time.sleep(600)
"""


def until_named(pid: int, name: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while name_of(pid) != name:
        assert time.monotonic() < deadline
        time.sleep(0.01)
