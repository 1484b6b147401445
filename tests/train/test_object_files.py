"""Commands on the files of saves in an object store: compare, export, remove."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from corral.cli.checkpoint_files import delete_files
from corral.domain.store_url import StoreUrl, parse_store_url
from corral.train.rank_settings import SettingInvalid, read_settings
from corral.train.save.export import CannotExport
from corral.train.save.file_program import run
from corral.train.save.manifest import Broken
from corral.train.save.object_store import ObjectShelf
from corral.train.save.restore import choose, release_fetched
from corral.train.save.saver import Saved
from corral.wire import api
from tests.train.object_saves import QUICK, published_folders
from tests.train.s3_server import Fault, MemoryBucket, S3Server, fill_env, serving
from tests.train.saves import (
    ALONE,
    candidate,
    capture,
    holder_at,
    saver_at,
    step_loaded,
)

pytestmark = pytest.mark.train
pytest.importorskip("obstore")
PLACE = parse_store_url("s3://bucket/files")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    with serving(MemoryBucket()) as server:
        fill_env(monkeypatch, server.env())
        yield server


@pytest.fixture
def pair(server: S3Server) -> list[Saved]:
    shelf = ObjectShelf(root=PLACE, job="j1", attempt=1, limits=QUICK)
    shelf.open()
    saver, saved = saver_at(shelf)
    for step in (3, 4):
        holder = holder_at(step)
        saver.save(step, lambda step=step, holder=holder: capture(holder, step))  # type: ignore[misc]
        saver.wait()
    saver.close()
    return saved


def asked(saves: list[Saved], action: str, **options: str) -> dict[str, Any]:
    fields = ("attempt", "step", "manifest_sha256")
    return {
        "action": action,
        "saves": [
            {"path": str(save.path)} | {name: getattr(save, name) for name in fields}
            for save in saves
        ],
        **options,
    }


def view_of(saved: Saved) -> api.CheckpointView:
    return api.CheckpointView.model_construct(
        step=saved.step,
        attempt=saved.attempt,
        path=str(saved.path),
        manifest_sha256=saved.manifest_sha256,
    )


def test_a_save_of_the_real_saver_is_fetched_verified_and_loaded(
    pair: list[Saved],
) -> None:
    found = choose([candidate(pair[1])], ALONE, lambda one, why: None)
    assert found is not None
    assert found.folder is not None
    assert step_loaded(found) == 4
    release_fetched(found, ALONE)
    assert not found.folder.exists()


def test_a_save_is_compared_exported_and_removed(
    pair: list[Saved], server: S3Server, tmp_path: Path
) -> None:
    layers = run(asked(pair, "compare"))["layers"]
    assert [layer["parameters"] for layer in layers] == [200, 18]
    export = asked(pair[:1], "export", target=str(tmp_path / "out"), to="hf")
    with pytest.raises(CannotExport, match=r"config\.json"):
        run(export)
    assert isinstance(server.backend, MemoryBucket)
    server.backend.objects["files/config.json"] = b'{"model_type": "gpt2"}'
    assert [Path(path).name for path in run(export)["files"]] == [
        "model.safetensors",
        "config.json",
    ]
    assert delete_files(view_of(pair[0]))
    assert published_folders(PLACE) == {"attempt-1/step-4"}
    with pytest.raises(Broken, match="missing"):
        run(asked(pair[:1], "verify"))


def test_files_that_the_credentials_do_not_open_are_left(
    pair: list[Saved], server: S3Server
) -> None:
    server.choose = lambda request: Fault.DENIED
    assert not delete_files(view_of(pair[0]))
    server.choose = lambda request: None
    assert len(published_folders(PLACE)) == 2


def test_settings_of_ranks_name_the_store() -> None:
    saves = [{"attempt": 1, "step": 2, "path": "s3://b/a/attempt-1/step-2"}]
    saves[0]["manifest_sha256"] = "ab"
    env = {
        "CORRAL_JOB_ID": "j1",
        "CORRAL_CHECKPOINT_PATH": "s3://b/a/",
        "CORRAL_RESUME": json.dumps(saves),
    }
    settings = read_settings(env)
    assert settings.checkpoint_path == StoreUrl("s3://b/a")
    assert settings.resume is not None
    assert settings.resume[0].path == StoreUrl("s3://b/a/attempt-1/step-2")
    with pytest.raises(SettingInvalid, match="s3://bucket/prefix"):
        read_settings({"CORRAL_CHECKPOINT_PATH": "s3://"})


def test_without_the_package_the_refusal_says_what_to_install(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['obstore'] = None\n"
        "from corral.train.save.object_store import ObjectShelf\n"
        "from corral.domain.store_url import StoreUrl\n"
        "from corral.domain.errors import Unsupported\n"
        "try: ObjectShelf(root=StoreUrl('s3://b/a'), job='j', attempt=1).open()\n"
        "except Unsupported as error: print(error.hint)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": "src"},
    )
    assert done.stdout == "run: pip install 'corral[store]'\n"
