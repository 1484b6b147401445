"""Lines that a hostile rank writes to CORRAL_SOCKET. None of them may do harm to
anybody else."""

import json
from typing import Any

BIG = 2**63
HUGE = 2**70


def line(**fields: Any) -> bytes:
    return json.dumps(fields).encode() + b"\n"


def save(**fields: Any) -> bytes:
    return line(**{"type": "save", "step": 1, "path": "/x", **fields})


def progress(**fields: Any) -> bytes:
    return line(**{"type": "progress", "step": 1, **fields})


LINES: dict[str, bytes] = {
    "a save at step 2^63": save(step=BIG),
    "a save at step 2^64": save(step=2**64),
    "a save at step 2^70": save(step=HUGE),
    "a save at step -1": save(step=-1),
    "a save at step 1.5": save(step=1.5),
    "a save at step NaN": b'{"type":"save","step":NaN,"path":"/x"}\n',
    "a save at step 1e999": b'{"type":"save","step":1e999,"path":"/x"}\n',
    "a save at a step of 5,000 digits": b'{"type":"save","step":'
    + b"9" * 5_000
    + b"}\n",
    "a save at a step in words": save(step="seven"),
    "a save at step true": save(step=True),
    "a save at step null": save(step=None),
    "a save that took NaN seconds": save(seconds=float("nan")),
    "a save that took infinity": save(seconds=float("inf")),
    "a save that took 1e300 seconds": save(seconds=1e300),
    "a save that stalled for NaN": save(stall_seconds=float("nan")),
    "a save of 2^63 bytes": save(size_bytes=BIG),
    "a save of -1 bytes": save(size_bytes=-1),
    "a save of attempt 2^63": save(attempt=BIG),
    "a save of attempt 0": save(attempt=0),
    "a save whose path is half a surrogate": b'{"type":"save","step":1,"path":"\\ud800"}\n',
    "a save whose path holds a NUL": save(path="/x\0"),
    "a save whose path holds escape codes": save(path="/\x1b]52;c;x\x07"),
    "a save whose path has 900 KB": save(path="/" * 900_000),
    "a save whose path is a list": save(path=["/x"]),
    "a save without a path": line(type="save", step=1),
    "a save whose digest has 100 KB": save(manifest_sha256="f" * 100_000),
    "a save whose digest is half a surrogate": save(manifest_sha256="\udfff"),
    "a save set aside for a reason of 100 KB": save(quarantined="q" * 100_000),
    "a save set aside for half a surrogate": save(quarantined="\udc80"),
    "a save set aside for a dictionary": save(quarantined={"a": 1}),
    "2,000 saves": b"".join(save(step=n) for n in range(2_000)),
    "600 saves set aside": b"".join(save(step=n, quarantined="q") for n in range(600)),
    "progress at step 2^64": progress(step=2**64),
    "progress at step NaN": progress(step=float("nan")),
    "progress without a step": line(type="progress"),
    "a loss of NaN": progress(loss=float("nan")),
    "a loss of infinity": progress(loss=float("-inf")),
    "a loss in words": progress(loss="low"),
    "a rate of infinity": progress(samples_per_second=float("inf")),
    "an end at 2^63": progress(until=BIG),
    "a first step of 2^63": progress(first_step=BIG),
    "seconds of 1e308": progress(compute_seconds=1e308),
    "seconds of a list": progress(data_seconds=[1]),
    "the pace of rank 2^63": progress(rank=BIG),
    "the pace of another node's rank": progress(rank=7),
    "the paces of 10,000 ranks": b"".join(progress(rank=n) for n in range(10_000)),
    "the pace of rank -1": progress(rank=-1),
    "5,000 messages at once": progress() * 5_000,
    "a hello from rank NaN": b'{"type":"hello","rank":NaN}\n',
    "a message of no type": line(step=1),
    "a message whose type is a list": line(type=["save"]),
    "a message of an unknown type": line(type="doom"),
    "a list": b"[1, 2]\n",
    "a number": b"7\n",
    "nothing": b"\n" * 1_000,
    "no JSON": b"hello\n",
    "bytes that are not UTF-8": b'{"type":"\xff\xfe"}\n',
    "JSON nested 100,000 deep": b"[" * 100_000 + b"\n",
    "a line of 2 MB": b"x" * 2_000_000,
    "a line that does not end": b'{"type":"save","path":"' + b"y" * 100_000,
    "steps recorded that are no numbers": line(type="committed", steps=["a", None]),
    "steps recorded beyond 2^63": line(type="committed", steps=[BIG]),
    "a signal of number 2^70": line(type="signal", number=HUGE, to="ranks"),
    "a signal of number -5": line(type="signal", number=-5, to="ranks"),
    "a signal to nobody": line(type="signal", number=0, to="nobody"),
    "a warning with signal 2^70": line(type="warn", signal=HUGE, save=True),
    "a terminal of 10^9 rows": line(
        type="attach", rank=0, shell=True, rows=10**9, columns=-1
    ),
    "a terminal with half a surrogate": line(
        type="attach",
        rank=0,
        shell=True,
        rows=1,
        columns=1,
        command="\ud800",
        term="\0",
    ),
    "a terminal of rank 2^63": line(type="attach", rank=BIG, shell=False),
    "a stop with a grace of NaN": b'{"type":"stop","grace_seconds":NaN,"why":"x","save":false}\n',
    "a stop with a grace of 1e308": line(
        type="stop", grace_seconds=1e308, why="x", save=False
    ),
    "a stop without a reason": line(type="stop", grace_seconds=1.0, save=False),
    "watching the shim": line(type="watch"),
}

# These end the attempt that they are sent to, and nothing else.
ENDS: dict[str, bytes] = {
    "a refusal with half a surrogate": line(type="refuse", why="\ud800", infra=True),
    "a refusal of 500 KB": line(type="refuse", why="w" * 500_000),
    "a refusal with NUL and escape codes": line(type="refuse", why="\0\x1b[2J"),
    "a stop for half a surrogate": line(
        type="stop", grace_seconds=0.1, why="\udfff", save=False
    ),
}
