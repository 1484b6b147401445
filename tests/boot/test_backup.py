"""A backup of a cluster's directory: whole or not there, and refused rather than
guessed."""

import asyncio
import gzip
import hashlib
import json
import os
import re
import tarfile
from errno import ENOSPC
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from corral.agent.own_address import LOOPBACK
from corral.boot.backup import ABOUT, Into, back_up, restore
from corral.boot.backup_sealing import generate, identity_of, recipient_of
from corral.boot.directory_lock import sole_head
from corral.boot.head_port import bind
from corral.boot.secret_encryption import KeyRing
from corral.boot.settings import ClusterDir, ClusterSettings
from corral.boot.tls import own_files, own_tls
from corral.domain.errors import Conflict, CorralError, StoreTrouble, Unsupported
from corral.domain.world import Changes
from corral.store.sqlite import SqliteStore
from tests.postgres import Server
from tests.store.rows import ANN, job, spec

BODY = b"what a job runs in"
DIGEST = hashlib.sha256(BODY).hexdigest()


@pytest.fixture
def here(tmp_path: Path) -> ClusterDir:
    """A cluster with a queued job, one that is over, a secret, a key and two
    snapshots."""
    place = ClusterDir(tmp_path / "here")
    place.create()
    ClusterSettings(nodes=2).save(place)
    ring = KeyRing.load(place.key)
    (place.root / "snapshots").mkdir()
    (place.root / "snapshots" / f"{DIGEST}.tar.gz").write_bytes(BODY)
    (place.root / "snapshots" / f"{'0' * 64}.tar.gz").write_bytes(b"of nobody any more")

    async def fill() -> None:
        store = SqliteStore(place.database)
        rows = (job(1, spec=spec("waits", workdir=DIGEST)),)
        await store.commit((await store.lead()).term, Changes(jobs=rows))
        await store.put_secret("TOKEN", ring.seal("TOKEN", b"hush"), by=ANN, at=1.0)
        await store.close()

    asyncio.run(fill())
    return place


@pytest.fixture
def there(tmp_path: Path) -> ClusterDir:
    return ClusterDir(tmp_path / "there")


@pytest.fixture
def file(here: ClusterDir, tmp_path: Path) -> Path:
    path = tmp_path / "a.backup"
    back_up(here, path, 100.0)
    return path


def secret_in(place: ClusterDir) -> bytes:
    async def read() -> bytes:
        store = SqliteStore(place.database)
        sealed = await store.secret("TOKEN")
        await store.close()
        assert sealed is not None
        return KeyRing.load(place.key).open("TOKEN", sealed)

    return asyncio.run(read())


def test_a_cluster_is_restored_with_its_key_its_settings_and_what_its_jobs_run_in(
    file: Path, here: ClusterDir, there: ClusterDir
) -> None:
    about = restore(there, file)
    assert (about.at, about.jobs, about.unfinished, about.snapshots) == (100.0, 1, 1, 1)
    assert secret_in(there) == b"hush"
    assert there.cluster_json.read_text() == here.cluster_json.read_text()
    assert [path.name for path in (there.root / "snapshots").iterdir()] == [
        f"{DIGEST}.tar.gz"
    ]
    assert sorted(path.name for path in there.root.iterdir()) == [
        "cluster.json", "corral.db", "head.lock", "key", "snapshots",
    ]  # fmt: skip


def test_agents_and_clients_of_before_find_the_restored_head(
    here: ClusterDir, there: ClusterDir, tmp_path: Path
) -> None:
    names, file = ("192.0.2.2",), tmp_path / "b.backup"
    before = own_tls(here, names, 100.0).fingerprint
    with bind(here, LOOPBACK) as serving:
        url = f"https://192.0.2.2:{serving.getsockname()[1]}"
    here.head_json.write_text(json.dumps({"url": url, "pid": 1}))
    back_up(here, file, 100.0)
    restore(there, file)
    assert json.loads(there.head_json.read_text()) == {"url": url}, (
        "no process of before"
    )
    assert own_tls(there, names, 200.0).fingerprint == before
    assert there.trusted.read_bytes() == here.trusted.read_bytes()
    for secret in (there.tls / "ca.key", there.tls / "head.key"):
        assert secret.stat().st_mode & 0o777 == 0o600
    with bind(there, LOOPBACK) as serving:
        assert serving.getsockname()[1] == urlsplit(url).port


def test_a_directory_that_has_an_address_keeps_it(
    here: ClusterDir, there: ClusterDir, tmp_path: Path
) -> None:
    file = tmp_path / "b.backup"
    for place, url in ((here, "https://192.0.2.2:1"), (there, "https://192.0.2.3:2")):
        place.create()
        own_tls(place, ("192.0.2.2",), 100.0)
        place.head_json.write_text(json.dumps({"url": url}))
    back_up(here, file, 100.0)
    kept = {name: path.read_bytes() for name, path in own_files(there).items()}
    restore(there, file)
    assert json.loads(there.head_json.read_text())["url"] == "https://192.0.2.3:2"
    assert {name: path.read_bytes() for name, path in own_files(there).items()} == kept


def test_a_damaged_address_is_left_out(
    here: ClusterDir, there: ClusterDir, tmp_path: Path
) -> None:
    here.head_json.write_text("{")
    back_up(here, tmp_path / "b.backup", 100.0)
    restore(there, tmp_path / "b.backup")
    assert not there.head_json.exists()
    assert secret_in(there) == b"hush"


def test_only_its_owner_can_read_it(file: Path) -> None:
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_backup_is_made_while_a_head_writes(here: ClusterDir, tmp_path: Path) -> None:
    async def beside() -> None:
        store = SqliteStore(here.database)
        term = (await store.lead()).term
        await store.commit(term, Changes(jobs=(job(2),)))
        about = await asyncio.to_thread(back_up, here, tmp_path / "b.backup", 1.0)
        assert about.jobs == 2
        await store.commit(term, Changes(jobs=(job(3),)))
        await store.close()

    with sole_head(here):
        asyncio.run(beside())


def test_a_file_that_is_there_is_not_written_over(here: ClusterDir, file: Path) -> None:
    before = file.read_bytes()
    with pytest.raises(Conflict, match="already exists"):
        back_up(here, file, 101.0)
    assert file.read_bytes() == before


def test_a_directory_without_a_cluster_has_nothing_to_back_up(tmp_path: Path) -> None:
    with pytest.raises(Conflict, match="no cluster"):
        back_up(ClusterDir(tmp_path / "none"), tmp_path / "x.backup", 1.0)
    assert not (tmp_path / "x.backup").exists()


def test_a_cluster_moves_into_a_server_and_back_into_a_file(
    file: Path, there: ClusterDir, tmp_path: Path, postgres: Server
) -> None:
    address, state = tmp_path / "store", tmp_path / "state"
    address.touch(mode=0o600)
    address.write_text(postgres.database())
    into = Into(store_file=str(address), shared_state=str(state))
    restore(there, file, into)
    assert not there.database.exists()
    assert (state / "snapshots" / f"{DIGEST}.tar.gz").read_bytes() == BODY
    settings = ClusterSettings.load(there)
    assert settings is not None
    assert (settings.nodes, settings.store_file, settings.shared_state) == (
        2, str(address), str(state)
    )  # fmt: skip
    with pytest.raises(Conflict, match="already contains a cluster"):
        restore(ClusterDir(tmp_path / "other"), file, into)
    about = back_up(there, tmp_path / "b.backup", 200.0)
    assert (about.jobs, about.unfinished, about.snapshots) == (1, 1, 1)
    back = ClusterDir(tmp_path / "back")
    restore(back, tmp_path / "b.backup")
    assert secret_in(back) == b"hush"
    assert (back.root / "snapshots" / f"{DIGEST}.tar.gz").read_bytes() == BODY
    settings = ClusterSettings.load(back)
    assert settings is not None
    assert (settings.nodes, settings.store_file, settings.shared_state) == (
        2,
        None,
        None,
    )


def test_a_backup_that_fails_leaves_no_file(
    here: ClusterDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(ENOSPC, "full")

    monkeypatch.setattr("corral.boot.backup._write_archive", full)
    with pytest.raises(OSError, match="full"):
        back_up(here, tmp_path / "a.backup", 1.0)
    assert [path.name for path in tmp_path.iterdir()] == ["here"]


@pytest.mark.parametrize(
    ("name", "said", "hint"),
    [
        (
            "nonex/x",
            "the folder .*/nonex does not exist$",
            "folder: mkdir -p .*/nonex$",
        ),
        (
            "plain/x",
            "plain/x cannot be written: Not a directory$",
            "corral backup ~/FILE$",
        ),
    ],
)
def test_where_no_file_can_be_made_that_is_said_with_what_to_do(
    here: ClusterDir, tmp_path: Path, name: str, said: str, hint: str
) -> None:
    (tmp_path / "plain").touch()
    with pytest.raises(Conflict, match=said) as refused:
        back_up(here, tmp_path / name, 1.0)
    assert re.search(hint, refused.value.hint)


def test_where_a_store_is_nothing_is_restored(file: Path, here: ClusterDir) -> None:
    before = here.database.read_bytes()
    with pytest.raises(Conflict, match="already contains a store"):
        restore(here, file)
    assert here.database.read_bytes() == before


def test_where_a_head_runs_nothing_is_restored(file: Path, there: ClusterDir) -> None:
    there.create()
    with sole_head(there), pytest.raises(Conflict, match="a head already runs"):
        restore(there, file)
    assert not there.database.exists()


def test_another_key_is_not_replaced(file: Path, there: ClusterDir) -> None:
    there.create()
    KeyRing.load(there.key).seal("A", b"x")
    with pytest.raises(Conflict, match="differs from the same file in the backup"):
        restore(there, file)
    assert not there.database.exists()


def test_the_same_directory_is_restored_after_its_store_is_lost(
    file: Path, here: ClusterDir
) -> None:
    for path in here.root.glob("corral.db*"):
        path.unlink()
    restore(here, file)
    assert secret_in(here) == b"hush"


def repacked(file: Path, change: str, content: bytes) -> Path:
    """The backup with another content of that member."""
    fresh = file.with_name("changed.backup")
    with tarfile.open(file) as old, tarfile.open(fresh, "w:gz") as new:
        for member in old.getmembers():
            inside = old.extractfile(member)
            assert inside is not None
            body = content if member.name.startswith(change) else inside.read()
            member.size = len(body)
            temporary = file.with_name("body")
            temporary.write_bytes(body)
            with temporary.open("rb") as source:
                new.addfile(member, source)
    return fresh


@pytest.mark.parametrize("change", ["rows.jsonl", "snapshots/", ABOUT])
def test_a_backup_that_was_changed_is_refused_and_leaves_no_store(
    file: Path, there: ClusterDir, change: str
) -> None:
    with pytest.raises(StoreTrouble, match="damaged"):
        restore(there, repacked(file, change, b"{}"))
    assert not there.root.exists(), "no lock, no key and no settings are left"
    restore(there, file)  # a good one is taken after it
    assert secret_in(there) == b"hush"


def test_a_backup_cut_short_is_refused_unless_only_its_padding_is_gone(
    file: Path, here: ClusterDir, tmp_path: Path
) -> None:
    whole, refused = file.read_bytes(), 0
    for at in range(0, len(whole) - 8, max(1, len(whole) // 40)):
        short = tmp_path / f"short-{at}"
        short.write_bytes(whole[:at])
        place = ClusterDir(tmp_path / f"there-{at}")
        try:
            restore(place, short)
        except CorralError:
            refused += 1
            assert not place.root.exists()
        else:
            assert secret_in(place) == b"hush"
            for name in ("snapshots", "cluster.json"):
                assert (place.root / name).exists()
    assert refused >= 35


def test_one_of_another_schema_is_refused_with_what_to_do(
    file: Path, there: ClusterDir
) -> None:
    with tarfile.open(file) as tar:
        inside = tar.extractfile(ABOUT)
        assert inside is not None
        about = inside.read()
    other = about.replace(b'"revision":"00', b'"revision":"99')
    with pytest.raises(Unsupported, match="schema version 99"):
        restore(there, repacked(file, ABOUT, other))


@pytest.mark.parametrize(
    "content",
    [b"", b"no tar", gzip.compress(b"no tar either" * 100, mtime=0)],
    ids=["empty", "text", "zipped text"],
)
def test_what_is_no_backup_is_refused(
    content: bytes, there: ClusterDir, tmp_path: Path
) -> None:
    odd = tmp_path / "odd"
    odd.write_bytes(content)
    with pytest.raises(StoreTrouble, match="is not a backup"):
        restore(there, odd)


def test_a_file_that_is_not_there_is_told(there: ClusterDir, tmp_path: Path) -> None:
    with pytest.raises(Conflict, match="no file"):
        restore(there, tmp_path / "none")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read all files")
def test_one_that_may_not_be_read_is_told(file: Path, there: ClusterDir) -> None:
    file.chmod(0)
    with pytest.raises(CorralError):
        restore(there, file)


def test_a_sealed_backup_is_opened_by_its_identity_alone(
    here: ClusterDir, there: ClusterDir, tmp_path: Path
) -> None:
    identity, file = tmp_path / "identity", tmp_path / "sealed"
    recipient = recipient_of(generate(identity))
    about = back_up(here, file, 100.0, recipient)
    assert file.stat().st_mode & 0o777 == 0o600
    assert here.key.read_bytes().strip() not in file.read_bytes()
    with pytest.raises(Conflict, match="is encrypted for a recipient") as refused:
        restore(there, file)
    assert "--identity" in refused.value.hint
    generate(tmp_path / "other")
    with pytest.raises(StoreTrouble, match="another identity"):
        restore(there, file, identity=identity_of(tmp_path / "other"))
    cut = tmp_path / "cut"
    cut.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(StoreTrouble, match="incomplete|was changed"):
        restore(there, cut, identity=identity_of(identity))
    assert not there.database.exists()
    assert not there.key.exists()
    assert restore(there, file, identity=identity_of(identity)) == about
    assert there.key.read_bytes() == here.key.read_bytes()


def test_a_plain_backup_is_not_taken_for_a_sealed_one(
    file: Path, there: ClusterDir, tmp_path: Path
) -> None:
    generate(tmp_path / "identity")
    with pytest.raises(Conflict, match="is not encrypted"):
        restore(there, file, identity=identity_of(tmp_path / "identity"))
    assert not there.database.exists()
