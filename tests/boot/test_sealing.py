"""Secrets at rest."""

import asyncio
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.boot.secret_encryption import FORM, KeyRing, KeyTrouble
from corral.domain.ids import UserName
from corral.store.sqlite import SqliteStore

ANN = UserName("ann")
CANARY = b"canary-2f9c81d7"


@pytest.fixture
def ring(tmp_path: Path) -> KeyRing:
    return KeyRing.load(tmp_path / "key")


def test_the_key_is_made_at_first_use_for_its_owner_alone(tmp_path: Path) -> None:
    sealed = KeyRing.load(tmp_path / "key").seal("A", b"value")
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600
    assert KeyRing.load(tmp_path / "key").open("A", sealed) == b"value"


@given(name=st.text(), value=st.binary(max_size=300))
def test_what_is_sealed_opens_to_the_same_and_shows_nothing(
    name: str, value: bytes
) -> None:
    ring = KeyRing(Path("key"), (b"k" * 32,))
    sealed = ring.seal(name, value)
    assert ring.open(name, sealed) == value
    assert ring.seal(name, value) != sealed
    assert len(value) < 8 or value not in sealed.removeprefix(FORM)


def test_a_value_opens_only_under_its_own_name(ring: KeyRing) -> None:
    with pytest.raises(KeyTrouble, match="another name"):
        ring.open("B", ring.seal("A", b"value"))


def test_any_changed_byte_is_seen(ring: KeyRing) -> None:
    sealed = ring.seal("A", b"value")
    for place in range(len(sealed)):
        bent = bytearray(sealed)
        bent[place] ^= 1
        with pytest.raises(KeyTrouble):
            ring.open("A", bytes(bent))
    for length in range(len(sealed)):
        with pytest.raises(KeyTrouble):
            ring.open("A", sealed[:length])


def test_another_key_is_named_as_the_trouble(tmp_path: Path, ring: KeyRing) -> None:
    other = KeyRing.load(tmp_path / "other")
    with pytest.raises(KeyTrouble, match="a key that is not in") as found:
        other.open("A", ring.seal("A", b"value"))
    assert "corral secret set A" in found.value.hint


@pytest.mark.parametrize("text", ["", "no hex", "abcd", "00" * 31])
def test_a_file_without_a_key_is_refused_and_left_alone(
    tmp_path: Path, text: str
) -> None:
    path = tmp_path / "key"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(KeyTrouble, match="does not contain a valid key"):
        KeyRing.load(path)
    assert path.read_text() == text


def test_a_key_that_others_may_read_is_refused(tmp_path: Path) -> None:
    KeyRing.load(tmp_path / "key")
    (tmp_path / "key").chmod(0o640)
    with pytest.raises(KeyTrouble, match="0640"):
        KeyRing.load(tmp_path / "key")


def test_a_directory_that_is_not_there_is_trouble_with_a_hint(tmp_path: Path) -> None:
    with pytest.raises(KeyTrouble, match="cannot be used"):
        KeyRing.load(tmp_path / "nowhere" / "key")


def test_no_secret_lies_in_the_clear_in_any_file_of_the_store(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = SqliteStore(tmp_path / "corral.db")
        ring = KeyRing.load(tmp_path / "key")
        await store.put_secret("A", ring.seal("A", CANARY), by=ANN, at=1.0)
        await store.put_secret("A", ring.seal("A", CANARY + b"2"), by=ANN, at=1.0)
        seen = [tmp_path / name for name in os.listdir(tmp_path)]
        assert (tmp_path / "corral.db-wal") in seen
        assert not any(CANARY in path.read_bytes() for path in seen)
        await store.close()
        assert CANARY not in (tmp_path / "corral.db").read_bytes()

    asyncio.run(scenario())
