"""The device filter of cgroups of version 2: its program, run by an interpreter of its
own."""

import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from corral.agent.containment.device_filter import (
    BPF_PROG_LOAD,
    BPF_PROG_TYPE_CGROUP_DEVICE,
    attach,
    device_program,
)

BLOCK, CHAR = 1, 2
READ_WRITE = 6
NVIDIA, CAPS, DRI = 195, 510, 226


def allows(program: bytes, kind: int, major: int, minor: int) -> bool:
    """Run the program as the kernel would: registers, a context of three words, no
    memory else."""
    context = struct.pack("=III", READ_WRITE << 16 | kind, major, minor)
    registers = [0] * 11
    at = 0
    for _ in range(10_000):
        code, both, offset, value = struct.unpack_from("=BBhi", program, at * 8)
        low, high = both & 15, both >> 4
        target, source = (low, high) if sys.byteorder == "little" else (high, low)
        at += 1
        if code == 0x61:
            assert source == 1, "only the context is read"
            (registers[target],) = struct.unpack_from("=I", context, offset)
        elif code == 0x57:
            registers[target] &= value
        elif code == 0xB7:
            registers[target] = value
        elif code in (0x15, 0x55):
            at += offset if (registers[target] == value) == (code == 0x15) else 0
        elif code == 0x95:
            return bool(registers[0])
        else:
            raise AssertionError(f"unknown opcode {code:#x}")
    raise AssertionError("the program does not end")


@pytest.mark.parametrize(
    ("kind", "major", "minor", "expected"),
    [
        (CHAR, NVIDIA, 1, True),
        (CHAR, NVIDIA, 0, False),
        (CHAR, NVIDIA, 255, True),
        (CHAR, CAPS, 3, True),
        (CHAR, CAPS, 4, False),
        (CHAR, DRI, 128, False),
        (CHAR, 1, 3, True),  # /dev/null
        (CHAR, 136, 0, True),  # a terminal
        (BLOCK, NVIDIA, 0, True),  # not a GPU
    ],
)
def test_only_the_jobs_own_gpus_are_allowed(
    kind: int, major: int, minor: int, expected: bool
) -> None:
    program = device_program({NVIDIA: (1, 254, 255), CAPS: (3,), DRI: ()})
    assert allows(program, kind, major, minor) is expected


def test_every_jump_stays_inside_and_forward() -> None:
    """Else the kernel's verifier refuses the program."""
    program = device_program(
        {NVIDIA: tuple(range(64)), CAPS: tuple(range(64)), DRI: ()}
    )
    count = len(program) // 8
    assert count < 4096
    for at in range(count):
        code, _, offset, _ = struct.unpack_from("=BBhi", program, at * 8)
        if code in (0x15, 0x55):
            assert 0 <= at + 1 + offset < count
    assert program[-8] == 0x95


def test_a_kernel_that_refuses_is_told_with_its_reason(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="the device filter"):
        attach(tmp_path, {NVIDIA: ()})  # not a cgroup


def test_the_numbers_are_those_of_the_kernels_interface() -> None:
    assert (BPF_PROG_LOAD, BPF_PROG_TYPE_CGROUP_DEVICE) == (5, 15)
    assert os.uname().machine in ("x86_64", "aarch64", "riscv64", "ppc64le")


@pytest.fixture
def group() -> Iterator[Path]:
    """A cgroup of version 2, where one may be made."""
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    roots = [line.split()[4] for line in mounts if " - cgroup2 " in line]
    made = Path(roots[0] if roots else "/nowhere") / f"corral-filter-{os.getpid()}"
    try:
        made.mkdir()
    except OSError as trouble:
        pytest.skip(f"no cgroup of version 2 is to be had: {trouble}")
    try:
        yield made
    finally:
        made.rmdir()


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root attaches a filter")
def test_the_kernel_holds_a_process_to_its_devices(group: Path) -> None:
    """Of the memory devices (major 1) only /dev/null stands for the job's own GPU."""
    try:
        attach(group, {1: (3,)})
    except OSError as trouble:
        pytest.skip(f"this kernel has no device filter: {trouble}")
    script = (
        f"echo 0 > {group}/cgroup.procs; true < /dev/null && echo own; cat /dev/zero | head "
        "-c 1"
    )
    done = subprocess.run(
        ["/bin/sh", "-c", script], capture_output=True, text=True, check=False
    )
    assert done.stdout == "own\n"
    assert "Operation not permitted" in done.stderr
