"""Device filter of a cgroup of version 2: a BPF program in the kernel.

Version 1 has a controller for devices; version 2 asks a program that is attached to the
group (BPF_PROG_TYPE_CGROUP_DEVICE). The program made here denies the listed majors
except for some minors, and allows every other device. Sources: Linux,
include/uapi/linux/bpf.h (struct bpf_cgroup_dev_ctx, union bpf_attr) and
Documentation/bpf/standardization/instruction-set.rst.
"""

import ctypes
import os
import struct
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

SYS_BPF: Final = {"x86_64": 321, "aarch64": 280, "riscv64": 280, "ppc64le": 361}
BPF_PROG_LOAD: Final = 5
BPF_PROG_ATTACH: Final = 8
BPF_PROG_TYPE_CGROUP_DEVICE: Final = 15
BPF_CGROUP_DEVICE: Final = 6
BPF_F_ALLOW_MULTI: Final = 2
CHAR_DEVICE: Final = 2  # in the low 16 bits of the access type
_LICENSE: Final = b"Apache-2.0\0"
_ATTR_BYTES: Final = 128
_ACCESS_AT, _MAJOR_AT, _MINOR_AT = 0, 4, 8  # in the context

# Opcodes: class | source | operation, or class | size | mode.
LOAD_WORD: Final = 0x61  # LDX | W | MEM
AND_IMMEDIATE: Final = 0x57  # ALU64 | K | AND
MOVE_IMMEDIATE: Final = 0xB7  # ALU64 | K | MOV
JUMP_EQUAL: Final = 0x15  # JMP | K | JEQ
JUMP_NOT_EQUAL: Final = 0x55  # JMP | K | JNE
EXIT: Final = 0x95
_RESULT, _CONTEXT, _TYPE, _MAJOR, _MINOR = 0, 1, 2, 3, 4

_libc: Final = ctypes.CDLL(None, use_errno=True)
Allowed = Mapping[int, Sequence[int]]


def instruction(
    code: int, target: int = 0, source: int = 0, offset: int = 0, value: int = 0
) -> bytes:
    """Encode one BPF instruction: opcode, registers, jump offset and immediate value."""
    order = (
        (source << 4 | target) if sys.byteorder == "little" else (target << 4 | source)
    )
    return struct.pack("=BBhi", code, order, offset, value)


def device_program(allowed: Allowed) -> bytes:
    """Return the BPF program. For each character device major that is a key of
    `allowed`, it permits only the listed minors."""
    verdict = (instruction(MOVE_IMMEDIATE, _RESULT, value=1), instruction(EXIT))
    deny = (instruction(MOVE_IMMEDIATE, _RESULT, value=0), instruction(EXIT))
    program = [
        instruction(LOAD_WORD, _TYPE, _CONTEXT, _ACCESS_AT),
        instruction(AND_IMMEDIATE, _TYPE, value=0xFFFF),
        instruction(LOAD_WORD, _MAJOR, _CONTEXT, _MAJOR_AT),
        instruction(LOAD_WORD, _MINOR, _CONTEXT, _MINOR_AT),
        instruction(JUMP_EQUAL, _TYPE, offset=len(verdict), value=CHAR_DEVICE),
        *verdict,
    ]
    for major, minors in sorted(allowed.items()):
        own_parts = [
            minor_instruction
            for minor in minors
            for minor_instruction in _if_minor(minor, verdict)
        ]
        body = [*own_parts, *deny]
        program += [
            instruction(JUMP_NOT_EQUAL, _MAJOR, offset=len(body), value=major),
            *body,
        ]
    return b"".join([*program, *verdict])


def _if_minor(minor: int, verdict: Sequence[bytes]) -> list[bytes]:
    return [
        instruction(JUMP_NOT_EQUAL, _MINOR, offset=len(verdict), value=minor),
        *verdict,
    ]


def attach(group: Path, allowed: Allowed) -> None:
    """Restrict the processes of the group to these devices for as long as the group
    exists.

    Raises: OSError where the kernel or the privileges do not allow it.
    """
    program = device_program(allowed)
    code, license = (
        ctypes.create_string_buffer(program),
        ctypes.create_string_buffer(_LICENSE),
    )
    load = struct.pack(
        "=IIQQ",
        BPF_PROG_TYPE_CGROUP_DEVICE,
        len(program) // 8,
        ctypes.addressof(code),
        ctypes.addressof(license),
    )
    loaded = _call_bpf(BPF_PROG_LOAD, load, "cannot load the device filter")
    try:
        folder = os.open(group, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            bpf_attributes = struct.pack(
                "=IIII", folder, loaded, BPF_CGROUP_DEVICE, BPF_F_ALLOW_MULTI
            )
            _call_bpf(
                BPF_PROG_ATTACH, bpf_attributes, "cannot attach the device filter"
            )
        finally:
            os.close(folder)
    finally:
        os.close(loaded)


def _call_bpf(command: int, words: bytes, what: str) -> int:
    """Call bpf() and return its result.

    Raises: OSError when the call fails.
    """
    number = SYS_BPF.get(os.uname().machine)
    if number is None:
        raise OSError(f"{what}: bpf() has no known number on this processor")
    attr = ctypes.create_string_buffer(words, _ATTR_BYTES)
    answer: int = _libc.syscall(
        ctypes.c_long(number), command, ctypes.byref(attr), _ATTR_BYTES
    )
    if answer < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{what}: {os.strerror(error)}")
    return answer
