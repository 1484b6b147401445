"""Many points in the life of saves in an object store: a process is killed, fenced, or
meets a fault at any request, and any stored byte changes."""

import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import count

import pytest

from corral.domain.errors import CorralError
from corral.domain.store_url import StoreUrl, parse_store_url
from corral.store import object_client
from corral.store.object_client import ObjectClient
from corral.train.save.checkpoint_store import Fenced
from corral.train.save.manifest import MANIFEST, Broken
from corral.train.save.object_restore import StoredSave
from tests.train.moto_process import moto_backend, moto_program
from tests.train.object_saves import (
    At,
    choosing,
    load_newest,
    load_save,
    opened,
    published_folders,
    save_step,
)
from tests.train.s3_server import Fault, MemoryBucket, S3Server, fill_env, serving

pytestmark = pytest.mark.train
pytest.importorskip("obstore")
POINTS = 30
SOAK_POINTS = 2000
CORRUPTIONS = 150
SOAK_CORRUPTIONS = 5000
REQUESTS = 26  # at most, of the opening of an attempt and of a save
MEMORY = "memory"
needs_moto = pytest.mark.skipif(
    moto_program() is None, reason="moto_server is not installed"
)
SIZES = [
    pytest.param(MEMORY, POINTS, CORRUPTIONS, id="memory"),
    pytest.param(
        MEMORY, SOAK_POINTS, SOAK_CORRUPTIONS, id="memory-many", marks=pytest.mark.soak
    ),
    pytest.param(
        "moto",
        SOAK_POINTS,
        SOAK_CORRUPTIONS,
        id="moto-many",
        marks=[pytest.mark.soak, needs_moto],
    ),
]
TRANSIENT = [
    Fault.UNAVAILABLE,
    Fault.CUT_BEFORE,
    Fault.CUT_AFTER,
    Fault.CUT_BODY,
    Fault.LATE,
]
Change = Callable[[random.Random, bytes], bytes | None]
CHANGES: list[Change] = [
    lambda chance, data: flipped(chance, data),
    lambda chance, data: data[: chance.randrange(len(data))],
    lambda chance, data: data + b"x",
    lambda chance, data: bytes(len(data)),
    lambda chance, data: None,
]


def flipped(chance: random.Random, data: bytes) -> bytes:
    at = chance.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :]


@contextmanager
def serving_by(kind: str) -> Iterator[S3Server]:
    with ExitStack() as stack:
        backend = (
            MemoryBucket() if kind == MEMORY else stack.enter_context(moto_backend())
        )
        yield stack.enter_context(serving(backend))


@pytest.mark.parametrize(("kind", "points", "corruptions"), SIZES)
def test_no_point_leaves_the_newest_save_unloadable_or_lets_an_older_attempt_publish(
    monkeypatch: pytest.MonkeyPatch, kind: str, points: int, corruptions: int
) -> None:
    if kind == MEMORY:  # S3 and moto want parts of 5 MiB
        monkeypatch.setattr(object_client, "PART_BYTES", 1000)
    chance = random.Random(20)
    met: Counter[str] = Counter()
    with serving_by(kind) as server:
        fill_env(monkeypatch, server.env())
        for point in count():
            if met.total() >= points:
                break
            root = parse_store_url(f"s3://bucket/points/{point}")
            act = chance.choice([killed_at, fenced_at, faulted_at])
            met[act.__name__] += act(server, root, chance)
            server.seen.clear()
    print(f"points that were met, by kind: {dict(met)}")
    assert min(met.values()) > 0.1 * points


def killed_at(server: S3Server, root: StoreUrl, chance: random.Random) -> bool:
    save_step(opened(1, root), 20)
    last_fault = chance.choice([Fault.DENIED, Fault.CUT_AFTER, Fault.LATE])
    at = At(chance.randint(1, REQUESTS), last_fault, always=Fault.DENIED)
    with choosing(server, at), suppress(CorralError):
        save_step(opened(2, root), 30)
    assert load_newest(root) in [(1, 20), (2, 30)]
    server.carry_out_late()
    assert load_newest(root) in [(1, 20), (2, 30)]
    save_step(opened(3, root), 40)
    assert load_newest(root) == (3, 40)
    return at.met is not None


def fenced_at(server: S3Server, root: StoreUrl, chance: random.Random) -> bool:
    old = opened(1, root)
    save_step(old, 10)
    seen: list[set[str]] = []

    def fence() -> None:
        opened(2, root)
        seen.append(published_folders(root))

    fault = chance.choice([None, Fault.LATE, Fault.CUT_AFTER, Fault.UNAVAILABLE])
    at = At(chance.randint(1, REQUESTS - 9), fault, then=fence)
    with choosing(server, at), suppress(CorralError):
        save_step(old, 20)
    server.carry_out_late()
    if at.met is not None:
        assert published_folders(root) == seen[0]
        with pytest.raises(Fenced):
            save_step(old, 30)
    assert load_newest(root) in [(1, 10), (1, 20)]
    return at.met is not None


def faulted_at(server: S3Server, root: StoreUrl, chance: random.Random) -> bool:
    save_step(opened(1, root), 10)
    at = At(chance.randint(1, REQUESTS), chance.choice(TRANSIENT))
    with choosing(server, at):
        save_step(opened(2, root), 20)
    server.carry_out_late()
    assert load_newest(root) == (2, 20)
    return at.met is not None


@pytest.mark.parametrize(("kind", "points", "corruptions"), SIZES)
def test_every_changed_byte_in_the_store_is_seen(
    monkeypatch: pytest.MonkeyPatch, kind: str, points: int, corruptions: int
) -> None:
    chance = random.Random(21)
    seen: Counter[str] = Counter()
    with serving_by(kind) as server:
        fill_env(monkeypatch, server.env())
        shelf = opened(1)
        old, new = save_step(shelf, 10), save_step(shelf, 20)
        client = ObjectClient(url=new.url, env=server.env())
        keys = [
            stored.key
            for stored in client.objects(f"{new.url.parent.parent.key}/")
            if new.url.key in stored.key or stored.key.endswith("3")
        ]
        assert len(keys) == 5  # three files, the manifest, its entry in the log
        for _ in range(corruptions):
            seen[corrupt_once(client, chance.choice(keys), (old, new), chance)] += 1
            server.seen.clear()
        load_save(new)
    print(f"corruptions: {dict(seen)}")
    assert seen["missed"] == 0
    assert seen["refused"] > 0.5 * corruptions


def corrupt_once(
    client: ObjectClient,
    key: str,
    saves: tuple[StoredSave, StoredSave],
    chance: random.Random,
) -> str:
    """Change an object, read, and put it back. Every byte of a loaded save is checked."""
    before = client.get(key)
    assert before is not None
    changed = chance.choice(CHANGES)(chance, before)
    if changed is None:
        client.delete([key])
    else:
        client.put(key, changed)
    old, new = saves
    try:
        load_save(new)
        result = "mended" if "/log/" in key or key.endswith(MANIFEST) else "missed"
    except Broken:
        load_save(old)
        result = "refused"
    client.put(key, before)
    return result
