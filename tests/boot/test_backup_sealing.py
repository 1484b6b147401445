"""Sealed backups: opened by their identity alone, and by nothing that was altered."""

import io
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from corral.boot.backup_sealing import (
    CHUNK_BYTES,
    FIRST_LINE,
    KEY_BYTES,
    TAG_BYTES,
    SealBroken,
    generate,
    identity_of,
    is_sealed,
    open_sealed,
    recipient_of,
    sealed,
)
from corral.domain.errors import Conflict, SpecInvalid

IDENTITY = X25519PrivateKey.generate()
HEADER = len(FIRST_LINE) + KEY_BYTES
LONG = bytes(range(256)) * (3 * CHUNK_BYTES // 256)


def seal(content: bytes, *, piece: int = 1000) -> bytes:
    out = io.BytesIO()
    with sealed(out, IDENTITY.public_key()) as into:
        for at in range(0, len(content), piece):
            into.write(content[at : at + piece])
    return out.getvalue()


def opened(file: bytes, identity: X25519PrivateKey = IDENTITY) -> bytes:
    into = io.BytesIO()
    open_sealed(io.BytesIO(file), identity, into)
    return into.getvalue()


@given(
    size=st.sampled_from(
        [0, 1, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 2 * CHUNK_BYTES]
    ),
    piece=st.sampled_from([777, CHUNK_BYTES, 3 * CHUNK_BYTES]),
)
def test_what_is_sealed_opens_to_the_same(size: int, piece: int) -> None:
    content = LONG[:size]
    file = seal(content, piece=piece)
    assert opened(file) == content
    assert is_sealed(io.BytesIO(file))
    assert not content[:64] or content[:64] not in file[HEADER:] or len(content) < 16


def test_every_cut_is_refused_also_between_chunks() -> None:
    file = seal(LONG)
    whole = CHUNK_BYTES + TAG_BYTES
    ends = [
        HEADER + number * whole + more for number in range(3) for more in (0, 1, -1, 40)
    ]
    for end in [*ends, 0, len(FIRST_LINE), HEADER - 1, len(file) - 1]:
        with pytest.raises(SealBroken):
            opened(file[:end])


@given(st.data())
def test_any_altered_bit_is_refused(data: st.DataObject) -> None:
    file = bytearray(seal(LONG[: CHUNK_BYTES + 100]))
    place = data.draw(st.integers(len(FIRST_LINE), len(file) - 1))
    file[place] ^= 1 << data.draw(st.integers(0, 7))
    # X25519 does not look at the highest bit of a point; the salt of the key does
    with pytest.raises(SealBroken):
        opened(bytes(file))


def test_chunks_cannot_be_moved_repeated_left_out_or_appended() -> None:
    file, whole = seal(LONG), CHUNK_BYTES + TAG_BYTES
    head, body = file[:HEADER], file[HEADER:]
    one, two, three = body[:whole], body[whole : 2 * whole], body[2 * whole :]
    for wrong in (
        two + one + three,
        one + one + three,
        one + three,
        body + three,
        body + b"x",
    ):
        with pytest.raises(SealBroken):
            opened(head + wrong)


def test_another_identity_opens_nothing() -> None:
    with pytest.raises(SealBroken, match="another identity"):
        opened(seal(b"hush"), X25519PrivateKey.generate())


def test_a_pair_is_made_once_and_read_from_itself_or_its_file(tmp_path: Path) -> None:
    file = tmp_path / "identity"
    recipient = generate(file)
    assert file.stat().st_mode & 0o777 == 0o600
    (tmp_path / "recipient").write_text(f"# of the safe\n{recipient}\n")
    raw = identity_of(file).public_key().public_bytes_raw()
    for said in (recipient, str(tmp_path / "recipient")):
        assert recipient_of(said).public_bytes_raw() == raw
    with pytest.raises(Conflict, match="cannot be written"):
        generate(file)
    assert identity_of(file).public_key().public_bytes_raw() == raw


@pytest.mark.parametrize(
    "said", ["nowhere", "corral-recipient-1:short", "corral-recipient-1:" + "ä" * 43]
)
def test_what_is_no_key_is_refused_with_how_to_make_one(said: str) -> None:
    with pytest.raises(SpecInvalid) as refused:
        recipient_of(said)
    assert "corral key generate" in refused.value.hint


def test_an_identity_is_not_taken_for_a_recipient(tmp_path: Path) -> None:
    generate(tmp_path / "identity")
    with pytest.raises(SpecInvalid):
        recipient_of(str(tmp_path / "identity"))
