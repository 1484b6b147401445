"""Attacks of a node that somebody else controls: each a list of frames on the agents'
channel."""

import copy
from collections.abc import Callable
from math import inf, nan
from typing import Any

import msgspec

from corral.wire.agent_messages import Heartbeat, LogChunk, encode
from tests.api.heads import up
from tests.hostile.arena import ATTACKER, NEIGHBOUR, Arena, greeting_of

Frames = list[bytes | str]
Attack = Callable[[Arena], Frames]
BIG = 2**63
HUGE = 2**64 - 1
MANY = 3_000_000


def frame(message: Any) -> bytes:
    return msgspec.msgpack.encode(message)


def beat(arena: Arena, **parts: Any) -> dict[str, Any]:
    """A heartbeat of the attacker, right but for these parts."""
    key = arena.attempt(arena.own())
    right = msgspec.to_builtins(Heartbeat(number=1, version=None, seen=(up(key),)))
    return {"type": "heartbeat", **right, **parts}


def seen(arena: Arena, **parts: Any) -> bytes:
    message = beat(arena)
    message["seen"][0].update(parts)
    return frame(message)


def save(arena: Arena, **parts: Any) -> dict[str, Any]:
    job, attempt = arena.attempt(arena.own())
    right = {
        "job": job, "attempt": attempt, "step": 7, "path": "/x", "manifest_sha256": "",
        "size_bytes": 1, "seconds": 1.0, "stall_seconds": 0.0, "at": 1.0,
    }  # fmt: skip
    return {**right, **parts}


def saving(**parts: Any) -> Attack:
    return lambda arena: [seen(arena, saves=[save(arena, **parts)])]


def of_seen(**parts: Any) -> Attack:
    return lambda arena: [seen(arena, **parts)]


def progress(**parts: Any) -> Attack:
    return of_seen(progress={"step": 3, "at": 1.0, **parts})


def signal(**parts: Any) -> dict[str, Any]:
    return {
        "number": 1,
        "at": 1.0,
        "kind": "xid",
        "text": "XID 79",
        "code": 79,
        "gpu": 0,
        **parts,
    }


def signalling(*signals: dict[str, Any]) -> Attack:
    return lambda arena: [frame(beat(arena, signals=list(signals)))]


def gpu(index: int = 0, **parts: Any) -> dict[str, Any]:
    return {"index": index, "uuid": f"GPU-{index}", "type": "h100", **parts}


def sampling(**parts: Any) -> Attack:
    return lambda arena: [frame(beat(arena, sample={"at": 1.0, **parts}))]


def stocking(**parts: Any) -> Attack:
    """With another inventory."""

    def attack(arena: Arena) -> Frames:
        has = copy.deepcopy(msgspec.to_builtins(_inventory()))
        return [frame(beat(arena, inventory={**has, **parts}))]

    return attack


def _inventory() -> Any:
    from tests.worlds import inventory

    return inventory(2)


def of_victim(arena: Arena) -> tuple[str, int]:
    return arena.attempt(arena.victim)


def not_utf8(arena: Arena) -> Frames:
    whole = seen(arena, trouble="surrogate!")
    return [whole.replace(b"surrogate!", b"\xed\xa0\x80rogate!")]


def line_of_victim(arena: Arena) -> Frames:
    forged = signal(number=900, attempts=[list(of_victim(arena))], text="forged")
    return [frame(beat(arena, signals=[forged]))]


def exit_of_victim(arena: Arena) -> Frames:
    key = list(of_victim(arena))
    ended = {
        "key": key,
        "phase": "ended",
        "exits": [[0, {"code": 1}]],
        "trouble": "forged",
    }
    return [frame(beat(arena, seen=[ended]))]


def save_of_victim(arena: Arena) -> Frames:
    job, attempt = of_victim(arena)
    return [seen(arena, saves=[save(arena, job=job, attempt=attempt)])]


def process_of_victim(arena: Arena) -> Frames:
    job, attempt = of_victim(arena)
    one = {"pid": 1, "job": job, "attempt": attempt}
    return [frame(beat(arena, sample={"at": 1.0, "gpus": [gpu(processes=[one])]}))]


def unknown_attempts(arena: Arena) -> Frames:
    many = [
        {"key": [f"j{n}", 1], "phase": "up", "tails": [[0, "x" * 999]]}
        for n in range(2_000)
    ]
    return [frame(beat(arena, seen=many)), frame(beat(arena))]


def signal_flood(arena: Arena) -> Frames:
    frames: Frames = []
    for n in range(20):
        many = [
            signal(number=10_000 + 50 * n + m, text="y" * 900, code=m)
            for m in range(50)
        ]
        frames.append(frame(beat(arena, signals=many)))
    return frames


def flapping(arena: Arena) -> Frames:
    has = msgspec.to_builtins(_inventory())
    return [frame(beat(arena, inventory={**has, "cpu_millis": n})) for n in range(40)]


def chunk(job: str, **parts: Any) -> bytes:
    right: dict[str, Any] = {
        "job": job,
        "attempt": 1,
        "rank": 0,
        "offset": 0,
        "data": b"forged\n",
    }
    return encode(LogChunk(**(right | parts)))


FORGED = 'x",hidden="1"} 1\ncorral_node_up{node="n2"} 0\n#'

ATTACKS: dict[str, Attack] = {
    "a save at step 2^63": saving(step=BIG),
    "a save at step 2^64-1": saving(step=HUGE),
    "a save at a negative step": saving(step=-1),
    "a save that took NaN seconds": saving(seconds=nan),
    "a save that stalled for infinity": saving(stall_seconds=inf),
    "a save of 2^63 bytes": saving(size_bytes=BIG),
    "a save made at NaN": saving(at=nan),
    "a save made in the year 10^300": saving(at=1e300),
    "a save whose path holds a NUL": saving(path="/x\0y"),
    "a save whose path has 3 MB": saving(path="/" * MANY),
    "a save whose path holds control characters": saving(path="/\x1b\n" * 1000),
    "a save whose digest has 1 MB": saving(manifest_sha256="f" * 1_000_000),
    "a save set aside for a reason of 1 MB": saving(quarantined="q" * 1_000_000),
    "a save of another user's job": save_of_victim,
    "a save of another attempt": saving(attempt=77),
    "20,000 saves in one heartbeat": lambda a: [
        seen(a, saves=[save(a, step=n) for n in range(20_000)])
    ],
    "2,000 saves in 20 heartbeats": lambda a: [
        seen(a, saves=[save(a, step=100 * n + m) for m in range(100)])
        for n in range(20)
    ],
    "an exit at NaN": of_seen(exits=[[0, {"code": 1, "at": nan}]]),
    "an exit with code 2^63": of_seen(exits=[[0, {"code": BIG}]]),
    "an exit without code and signal": of_seen(exits=[[0, {}]]),
    "an exit of another node's rank": of_seen(exits=[[5, {"code": 1}]]),
    "a peak of 2^64-1 bytes of memory": of_seen(
        exits=[[0, {"code": 1, "peak_bytes": HUGE}]]
    ),
    "100,000 exits": lambda a: [
        seen(a, exits=[[n, {"code": 0}] for n in range(100_000)])
    ],
    "an exit told 4,000 times": of_seen(exits=[[0, {"code": 0}]] * 4_000),
    "the end of another user's attempt": exit_of_victim,
    "an attempt that began at NaN": of_seen(started_at=nan),
    "an attempt that ran for infinity": of_seen(ran_seconds=inf),
    "an attempt number of 2^64-1": of_seen(key=["j1", HUGE]),
    "an attempt whose key holds a NUL": of_seen(key=["j\0", 1]),
    "2,000 attempts that nobody knows": unknown_attempts,
    "a loss of NaN": progress(loss=nan),
    "a step of 2^64-1": progress(step=HUGE),
    "a rate of infinity": progress(samples_per_second=inf),
    "the paces of other nodes' ranks": progress(
        ranks=[[n, 3, 1.0, 9e9, 0.0] for n in range(64)]
    ),
    "100,000 paces": progress(ranks=[[n, 1, 0.0, 0.0, 0.0] for n in range(100_000)]),
    "a trouble of 3 MB": of_seen(phase="refused", trouble="t" * MANY),
    "a trouble with NUL and escape codes": of_seen(trouble="a\0b\x1b]52;c;x\x07"),
    "a trouble that is not UTF-8": not_utf8,
    "a culprit of its choice": of_seen(
        trouble="broken", trouble_of=f"node {NEIGHBOUR}"
    ),
    "the tail of a log of 3 MB": of_seen(
        exits=[[0, {"code": 1}]], tails=[[0, "t" * MANY]]
    ),
    "a tail with NULs": of_seen(exits=[[0, {"code": 1}]], tails=[[0, "\0" * 4_000]]),
    "a signal at NaN": signalling(signal(at=nan)),
    "a signal with number 2^63": signalling(signal(number=BIG)),
    "a signal with the value infinity": signalling(
        signal(number=3, value=inf, limit=-inf)
    ),
    "a signal of a GPU that it has not": signalling(signal(number=4, gpu=2**53)),
    "a signal in the name of another node's part": signalling(
        signal(number=5, told_by=f"{NEIGHBOUR}~j1.1")
    ),
    "a line in another user's job by a signal": line_of_victim,
    "a signal of 3 MB": signalling(signal(number=6, text="s" * MANY)),
    "a signal of an unknown kind": signalling(signal(number=7, kind="doom")),
    "the lemon signal that only the head may send": signalling(
        signal(number=8, kind="lemon")
    ),
    "1,000 signals in 20 heartbeats": signal_flood,
    "10,000 signals in one heartbeat": signalling(
        *(signal(number=n) for n in range(10_000))
    ),
    "a signal naming 5,000 attempts": signalling(
        signal(number=9, attempts=[["j1", 1]] * 5_000)
    ),
    "energy of NaN joules": sampling(gpus=[gpu(energy_joules=nan)]),
    "energy of 1e308 joules": sampling(gpus=[gpu(energy_joules=1e308)]),
    "power of 1e300 watts": sampling(gpus=[gpu(power_watts=1e300)]),
    "a utilisation of 10^15": sampling(gpus=[gpu(utilisation=1e15)]),
    "memory of 2^63 bytes": sampling(gpus=[gpu(memory_used_bytes=BIG)]),
    "two GPUs with one index": sampling(gpus=[gpu(0), gpu(0)]),
    "a GPU with index 2^53": sampling(gpus=[gpu(2**53)]),
    "50,000 GPUs": sampling(gpus=[gpu(n) for n in range(50_000)]),
    "a GPU whose name forges a series": sampling(gpus=[gpu(uuid=FORGED, type=FORGED)]),
    "a port whose kind forges a series": sampling(
        ports=[{"name": "p", "kind": FORGED, "up": True}]
    ),
    "two ports with one name": sampling(
        ports=[{"name": "p", "kind": "e", "up": True}] * 2
    ),
    "a disk whose path forges a series": sampling(disks=[{"path": FORGED}]),
    "a process of another user's job": process_of_victim,
    "a sample at NaN": sampling(at=nan),
    "a CPU share of infinity": sampling(cpu_utilisation=inf),
    "300 samples at once": lambda a: [
        frame(beat(a, sample={"at": float(n), "gpus": [gpu(n % 64)]}))
        for n in range(300)
    ],
    "labels that attract work": stocking(
        labels=[["zone", "gold"], ["team", "research"]]
    ),
    "10,000 labels": stocking(labels=[[f"l{n}", "x"] for n in range(10_000)]),
    "a label told twice": stocking(labels=[["a", "b"], ["a", "c"]]),
    "a label that forges a series": stocking(labels=[["zone", FORGED]]),
    "a machine with 2^63 bytes of memory": stocking(memory_bytes=BIG),
    "a port with number 2^64-1": stocking(ports=[HUGE]),
    "40 inventories": flapping,
    "a heartbeat with number 2^63": lambda a: [frame(beat(a, number=BIG))],
    "a version of 2^64-1": lambda a: [
        frame(beat(a, version={"term": HUGE, "counter": 1}))
    ],
    "a heartbeat nested 100,000 deep": lambda a: [b"\x91" * 100_000],
    "a heartbeat that is cut off": lambda a: [frame(beat(a))[:-20]],
    "a frame of 5 MB": lambda a: [b"\0" * 5_000_000],
    "a frame of text": lambda a: ["hello"],
    "an array that says it has 2^32 items": lambda a: [b"\xdd\xff\xff\xff\xff"],
    "a message of another kind": lambda a: [frame({"type": "wanted"})],
    "a chunk of a log among heartbeats": lambda a: [chunk(a.victim)],
    "400 heartbeats at once": lambda a: [frame(beat(a))] * 400,
}

HELLOS: dict[str, Callable[[], bytes]] = {
    "a hello with a boot of 1 MB": lambda: greeting_of(ATTACKER, boot="b" * 1_000_000),
    "a hello as another node": lambda: greeting_of(NEIGHBOUR),
    "a hello with an address of its choice": lambda: greeting_of(
        ATTACKER, address="a b\n"
    ),
    "a hello with protocol 2^63": lambda: greeting_of(ATTACKER, protocol=BIG),
}

CHUNKS: dict[str, Callable[[Arena], bytes]] = {
    "a line in another user's log": lambda a: chunk(a.victim),
    "a log at offset 2^63": lambda a: chunk(a.own(), offset=BIG),
    "a log at a negative offset": lambda a: chunk(a.own(), offset=-5),
    "a log of rank 2^63": lambda a: chunk(a.own(), rank=BIG),
    "a log of a job called ../..": lambda a: chunk("../../x"),
}
