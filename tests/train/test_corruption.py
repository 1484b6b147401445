"""Whatever happens to the files of a save, it is seen before anything of it is
loaded."""

import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from corral.train.save import staging, storage
from corral.train.save.manifest import MANIFEST, Broken
from corral.train.save.restore import choose
from corral.train.save.saver import Saved
from corral.train.save.verify import verify
from tests.train.saves import ALONE, candidate, make_saves, step_loaded

pytestmark = pytest.mark.train
CORRUPTIONS: Final = 2_000
SOAK_CORRUPTIONS: Final = 10_000
Change = Callable[[random.Random, Path, Path], bytes | None]


def flip_a_bit(chance: random.Random, path: Path, other: Path) -> bytes:
    data = bytearray(path.read_bytes())
    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    return bytes(data)


def cut_it_short(chance: random.Random, path: Path, other: Path) -> bytes:
    data = path.read_bytes()
    return data[: chance.randrange(len(data))]


def write_zeros(chance: random.Random, path: Path, other: Path) -> bytes:
    data = path.read_bytes()
    start = chance.randrange(len(data))
    count = min(chance.choice([1, 16, 512, 4096]), len(data) - start)
    return data[:start] + bytes(count) + data[start + count :]


def add_to_it(chance: random.Random, path: Path, other: Path) -> bytes:
    return path.read_bytes() + chance.randbytes(chance.randrange(1, 64))


def take_another_steps(chance: random.Random, path: Path, other: Path) -> bytes:
    return other.read_bytes()


def take_a_neighbour(chance: random.Random, path: Path, other: Path) -> bytes:
    return chance.choice(
        [one for one in path.parent.iterdir() if one != path]
    ).read_bytes()


def remove_it(chance: random.Random, path: Path, other: Path) -> None:
    return None


CHANGES: Final[list[Change]] = [
    flip_a_bit,
    cut_it_short,
    write_zeros,
    add_to_it,
    take_another_steps,
    take_a_neighbour,
    remove_it,
]


CASES: Final = [
    (change, target)
    for change in CHANGES
    for target in (MANIFEST, storage.INDEX, "rank-00000-001.bin")
    # each step's index is the same
    if (change, target) != (take_another_steps, storage.INDEX)
]


@pytest.fixture
def two_saves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Saved]:
    # several data files in so small a save
    monkeypatch.setattr(staging, "FILE_BYTES", 400)
    saves = make_saves(tmp_path, [10, 20])
    assert len(list(saves[1].directory.glob("rank-*.bin"))) > 2
    return saves


@contextmanager
def changed(path: Path, data: bytes | None) -> Iterator[bool]:
    """The file with other contents, or without it for None; False when nothing
    differs."""
    before = path.read_bytes()
    if data is None:
        path.unlink()
    else:
        path.write_bytes(data)
    try:
        yield data != before
    finally:
        path.write_bytes(before)


@pytest.mark.parametrize(
    "corruptions",
    [CORRUPTIONS, pytest.param(SOAK_CORRUPTIONS, marks=pytest.mark.soak)],
)
@pytest.mark.parametrize(
    "recorded", [True, False], ids=["with a head's record", "without"]
)
def test_every_corruption_is_seen(
    two_saves: list[Saved], recorded: bool, corruptions: int
) -> None:
    old, new = two_saves
    chance = random.Random(7)
    files = sorted(path.name for path in new.directory.iterdir())
    sha256 = new.manifest_sha256 if recorded else None
    tried = 0
    while tried < corruptions // 2:
        name = chance.choice(files)
        change = chance.choice(CHANGES)
        data = change(chance, new.directory / name, old.directory / name)
        with changed(new.directory / name, data) as differs:
            if not differs:
                continue
            tried += 1
            with pytest.raises(Broken):
                verify(new.directory, attempt=1, step=20, manifest_sha256=sha256)
    verify(new.directory, attempt=1, step=20, manifest_sha256=sha256)


@pytest.mark.parametrize(("change", "target"), CASES)
def test_the_save_before_a_broken_one_is_loaded(
    two_saves: list[Saved],
    change: Change,
    target: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    old, new = two_saves
    data = change(random.Random(3), new.directory / target, old.directory / target)
    if data is None:
        (new.directory / target).unlink()
    else:
        (new.directory / target).write_bytes(data)
    told: list[int] = []
    found = choose(
        [candidate(new), candidate(old)], ALONE, lambda one, why: told.append(one.step)
    )
    assert found is not None
    assert step_loaded(found) == 10
    assert told == [20]
    assert not new.directory.exists()
    assert "DOES NOT VERIFY" in capsys.readouterr().err


def test_a_save_that_is_gone_as_a_whole_is_passed_over(two_saves: list[Saved]) -> None:
    old, new = two_saves
    shutil.rmtree(new.directory)
    found = choose([candidate(new), candidate(old)], ALONE, lambda one, why: None)
    assert found == candidate(old)


def test_a_whole_save_under_another_name_is_not_taken_for_that_step(
    two_saves: list[Saved],
) -> None:
    old, new = two_saves
    shutil.rmtree(new.directory)
    shutil.copytree(old.directory, new.directory)
    with pytest.raises(Broken, match="another save"):
        verify(new.directory, attempt=1, step=20)
