"""What several heads on one store must have alike, and how the store's address is
given."""

import asyncio
from base64 import b64decode
from pathlib import Path

import pytest
from cryptography.x509 import load_pem_x509_certificate

from corral.boot.bring_up import bring_up
from corral.boot.cluster_options import ClusterOptions
from corral.boot.declared_settings import STORE_FILE, STORE_VARIABLE
from corral.boot.key_rotation import HeadKeys
from corral.boot.leader_election import RollCall
from corral.boot.secret_encryption import KeyRing
from corral.boot.settings import ClusterDir, ClusterSettings, keep_variable
from corral.boot.stores import agree, check_several, open_store, url_in
from corral.boot.tls import agree_on_authority, own_tls, tls_of
from corral.domain.errors import Conflict, CorralError, SpecInvalid
from corral.domain.leader_election import HeadSeen
from corral.store.memory_store import MemoryStore

NOW = 1_795_000_000.0
ADDRESS = "postgresql://corral:hush@db.example.org/corral"


def place_of(root: Path, key: Path | None = None) -> tuple[ClusterDir, KeyRing]:
    place = ClusterDir(root)
    place.create()
    return place, KeyRing.load(key or place.key)


def settings(state: Path, name: str = "a") -> ClusterSettings:
    return ClusterSettings(store_file="/store", name=name, shared_state=str(state))


def join(
    store: MemoryStore, root: Path, name: str, state: Path, key: Path | None = None
) -> None:
    place, ring = place_of(root, key)

    async def begin() -> None:
        await HeadKeys(store=store, ring=ring, wall=lambda: 1.0, several=True).begin()
        await agree(store, place, settings(state, name))

    asyncio.run(begin())


def test_heads_with_one_key_and_one_folder_are_of_one_mind(tmp_path: Path) -> None:
    store, state = MemoryStore(), tmp_path / "state"
    join(store, tmp_path / "a", "a", state)
    join(store, tmp_path / "b", "b", state, key=tmp_path / "a" / "key")
    join(store, tmp_path / "a", "a", state)  # started again


@pytest.mark.parametrize(
    ("name", "key", "state", "what"),
    [
        ("a", "a/key", "state", "another head already has the name a"),
        ("b", None, "state", "differs from that of the other heads"),
        ("b", "a/key", "elsewhere", "not the directory that the other heads share"),
    ],
)
def test_a_head_that_differs_is_refused_with_what_to_do(
    tmp_path: Path, name: str, key: str | None, state: str, what: str
) -> None:
    store = MemoryStore()
    join(store, tmp_path / "a", "a", tmp_path / "state")
    with pytest.raises(Conflict, match=what) as refused:
        join(
            store,
            tmp_path / "b",
            name,
            tmp_path / state,
            tmp_path / key if key else None,
        )
    assert "corral up --" in refused.value.hint


def test_a_head_that_is_refused_leaves_its_name_to_the_next(tmp_path: Path) -> None:
    store, state = MemoryStore(), tmp_path / "state"
    join(store, tmp_path / "a", "a", state)
    with pytest.raises(Conflict, match="differs from that of the other heads"):
        join(store, tmp_path / "b", "b", state)
    with pytest.raises(Conflict, match="not the directory that the other heads share"):
        join(store, tmp_path / "c", "b", tmp_path / "elsewhere", tmp_path / "a" / "key")
    join(store, tmp_path / "d", "b", state, tmp_path / "a" / "key")


def test_the_address_is_read_from_a_file_of_ones_own(tmp_path: Path) -> None:
    file = tmp_path / "store"
    file.write_text(f"{ADDRESS}\n")
    file.chmod(0o640)
    with pytest.raises(Conflict, match="other users may read it"):
        url_in(str(file))
    file.chmod(0o600)
    assert url_in(str(file)) == ADDRESS
    file.write_text("")
    for wrong in (file, tmp_path / "none"):
        with pytest.raises(Conflict) as refused:
            url_in(str(wrong))
        assert "hush" not in refused.value.message
    assert url_in(None) is None


def test_what_the_variable_says_is_kept_for_the_next_start(tmp_path: Path) -> None:
    place, _ = place_of(tmp_path / "a")
    assert keep_variable(place, STORE_VARIABLE, STORE_FILE, {}) is None
    kept = keep_variable(place, STORE_VARIABLE, STORE_FILE, {"CORRAL_STORE": ADDRESS})
    assert url_in(kept) == ADDRESS


def test_a_password_on_the_command_line_is_refused_and_not_repeated(
    tmp_path: Path,
) -> None:
    asked = ClusterOptions(
        nodes=1, gpus=0, store_file=ADDRESS, shared_state=str(tmp_path)
    )
    with pytest.raises(
        SpecInvalid, match="needs a file instead of an address"
    ) as refused:
        bring_up(ClusterDir(tmp_path / "a"), asked)
    assert "hush" not in f"{refused.value.message}{refused.value.hint}"


@pytest.mark.parametrize(
    "wrong",
    [
        {"store_file": "/s"},
        {"name": "a"},
        {"shared_state": "/d"},
        {"store_file": "/s", "shared_state": "/d", "name": "No Name"},
    ],
    ids=["no folder", "a name alone", "a folder alone", "an odd name"],
)
def test_what_does_not_go_together_is_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(SpecInvalid) as refused:
        check_several(ClusterSettings(**wrong))  # type: ignore[arg-type]
    assert "corral up --" in refused.value.hint


def test_a_directory_with_jobs_of_its_own_is_not_left_behind(tmp_path: Path) -> None:
    place, _ = place_of(tmp_path / "a")
    asyncio.run(open_store(place, None, lambda: "c1").close())
    with pytest.raises(CorralError, match="already contains a store"):
        open_store(place, ADDRESS, lambda: "c1")


def test_nodes_are_named_after_their_head_only_where_there_are_several() -> None:
    assert ClusterSettings(nodes=2).node_names() == ["n1", "n2"]
    assert settings(Path("/d"), "b").node_names() == ["b-n1"]


def test_a_head_is_silent_for_as_long_as_its_beats_stand_still() -> None:
    roll = RollCall()
    a, b = HeadSeen(name="a", url="x", beats=1), HeadSeen(name="b", url="y", beats=7)
    roll.look([a, b], 100.0)
    roll.look([HeadSeen(name="a", url="x", beats=2), b], 104.0)
    found = {
        one.name: (one.leads, one.silent_seconds) for one in roll.heads("b", 105.0)
    }
    assert found == {"b": (True, 5.0), "a": (False, 1.0)}
    assert [one.name for one in roll.heads("b", 105.0)] == ["b", "a"]
    roll.look([b], 106.0)
    assert [one.name for one in roll.heads("b", 106.0)] == ["b"]


def test_agents_try_a_silent_head_last_and_still_know_it() -> None:
    """It may be the only one that is left when the others end."""
    roll = RollCall()
    a, b = HeadSeen(name="a", url="x", beats=1), HeadSeen(name="b", url="y", beats=1)
    c = HeadSeen(name="c", url="z", beats=1)
    roll.look([a, b, c], 100.0)
    roll.look([a, HeadSeen(name="b", url="y", beats=2), c], 115.0)
    assert [one.name for one in roll.heads("c", 115.0)] == ["c", "b", "a"]


def certified(store: MemoryStore, root: Path, name: str, key: Path) -> ClusterDir:
    place, keys = place_of(root, key)
    said = ClusterSettings(
        host="10.0.0.1", store_file="/store", name=name, shared_state="/d"
    )
    asyncio.run(agree_on_authority(store, place, said, keys, NOW))
    assert tls_of(place, said, NOW) is not None
    return place


def test_heads_that_make_their_certificates_themselves_have_one_authority(
    tmp_path: Path,
) -> None:
    """Also one that had another before; and it is the same after each start."""
    store, key = MemoryStore(), tmp_path / "key"
    late = ClusterDir(tmp_path / "b")
    late.create()
    own_tls(late, ["10.0.0.1"], NOW)
    own = late.trusted.read_bytes()
    first = certified(store, tmp_path / "a", "a", key)
    for _ in range(2):
        second = certified(store, tmp_path / "b", "b", key)
        assert second.trusted.read_bytes() == first.trusted.read_bytes() != own
        authority = load_pem_x509_certificate(first.trusted.read_bytes())
        shown = load_pem_x509_certificate((second.tls / "head.pem").read_bytes())
        shown.verify_directly_issued_by(authority)
    assert (second.tls / "ca.key").stat().st_mode & 0o077 == 0
    said = asyncio.run(store.agree("authority", ""))
    assert "PRIVATE KEY" not in b64decode(said).decode(errors="replace"), (
        "it is kept sealed"
    )
