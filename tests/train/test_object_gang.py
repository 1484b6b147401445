"""Gangs of real ranks that save to an object store and resume from it."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from corral.domain.store_url import parse_store_url
from corral.train.save.manifest import digest
from corral.train.save.object_store import published_entries
from tests.train.object_saves import QUICK
from tests.train.s3_server import Fault, MemoryBucket, S3Server, fill_env, serving
from tests.train.support import World, wait_for

pytestmark = pytest.mark.train
pytest.importorskip("obstore")
PLACE = parse_store_url("s3://bucket/gangs/run")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    with serving(MemoryBucket()) as server:
        fill_env(monkeypatch, server.env())
        yield server


@pytest.fixture
def stored_world(world: World, server: S3Server) -> World:
    world.env = server.env() | {"CORRAL_CHECKPOINT_PATH": str(PLACE)}
    return world


def recorded() -> list[dict[str, Any]]:
    """The published saves as CORRAL_RESUME names them, the newest first."""
    return [
        {
            "job": "j1",
            "attempt": entry.attempt,
            "step": entry.step,
            "path": str(PLACE / entry.folder),
            "manifest_sha256": digest(entry.manifest.encode()),
        }
        for entry in published_entries(PLACE, QUICK)
    ]


def has_saved(server: S3Server, count: int) -> bool:
    return len(published_entries(PLACE, QUICK)) >= count


def test_a_killed_gang_resumes_from_the_store_and_ends_as_if_undisturbed(
    stored_world: World, server: S3Server, tmp_path_factory: pytest.TempPathFactory
) -> None:
    calm = World(stored_world.zygote, tmp_path_factory.mktemp("calm"))
    gang = calm.launch(1, 2, steps=40, interval="1000")
    assert gang.wait() == [0, 0], gang.log()

    gang = stored_world.launch(1, 2, steps=40, pause_seconds=0.02)
    wait_for(partial(has_saved, server, 2), "two saves")
    gang.kill()
    gang.wait()
    saves = recorded()
    # an older save is not needed: a damaged newest one is passed over
    bucket = server.backend
    assert isinstance(bucket, MemoryBucket)
    key = parse_store_url(saves[0]["path"]).key
    name = next(name for name in bucket.objects if name.startswith(f"{key}/rank-"))
    bucket.objects[name] = b"x" + bucket.objects[name][1:]

    gang = stored_world.launch(2, 2, steps=40, resume=saves)
    assert gang.wait() == [0, 0], gang.log()
    assert "DOES NOT VERIFY" in gang.log()
    assert stored_world.resumed_at() == saves[1]["step"]
    assert stored_world.result() == calm.result()
    assert recorded()[0]["attempt"] == 2
    assert recorded()[0]["step"] == 40


def test_a_key_that_expires_stops_saves_and_not_training(
    stored_world: World, server: S3Server
) -> None:
    gang = stored_world.launch(1, 2, steps=60, pause_seconds=0.01)
    wait_for(partial(has_saved, server, 1), "a save")
    steps = {save["step"] for save in recorded()}
    server.choose = lambda request: Fault.EXPIRED
    assert gang.wait() == [0, 0], gang.log()
    assert "FAILED: Amazon S3 refuses access to s3://bucket: ExpiredToken" in gang.log()
    server.choose = lambda request: None
    assert steps <= {save["step"] for save in recorded()}


def test_a_bucket_that_is_not_there_is_said_before_training_begins(
    stored_world: World, server: S3Server
) -> None:
    env = {"CORRAL_CHECKPOINT_PATH": "s3://absent/x"}
    gang = stored_world.launch(1, 2, steps=5, env=env)
    assert 0 not in gang.wait()
    assert "saves cannot be written to s3://absent/x: there is no bucket" in gang.log()
