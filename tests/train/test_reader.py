"""A reader gives each sample once an epoch, in one order, from any storage."""

import io
import json
import pickle
import tarfile
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from corral.train.data.bad_data import BadData
from corral.train.data.data_feed import DataFeed
from corral.train.data.permutation import Indices, Permutation
from corral.train.data.read_times import DECODE, READ, ReadTimes
from corral.train.data.reader import Reader
from corral.train.data.record_shards import Files, Records
from corral.train.data.sample_order import SampleLocations, SampleOrder
from corral.train.data.shard_files import NoData
from corral.train.data.shard_index import INDEX_NAME
from corral.train.data.stream_position import DataChanged
from corral.train.data.token_shards import Tokens
from corral.train.step_timer import Meter
from tests.train.s3_server import serving

COUNTS = (5, 0, 9, 1, 12)


class NumberedSource:
    """A source without files: a sample is its number."""

    def __init__(self, counts: tuple[int, ...], mixed_shards: int | None) -> None:
        self.counts: Indices = np.array(counts, dtype=np.int64)
        self.mixed_shards = mixed_shards
        self.times = ReadTimes()
        self.identity = str(counts)
        self._starts = np.cumsum(self.counts) - self.counts

    def read(self, locations: SampleLocations) -> list[int]:
        numbers = self._starts[locations.shards] + locations.records
        return [int(number) for number in numbers]


@given(length=st.integers(1, 400), key=st.integers(0, 99))
def test_a_permutation_has_each_number_once(length: int, key: int) -> None:
    permuted = Permutation(length, key)(np.arange(length))
    assert sorted(permuted.tolist()) == list(range(length))


def test_the_order_is_the_same_in_all_versions() -> None:
    """Named values: a change here would repeat and lose samples of every running
    job."""
    permuted = Permutation(10, 3, 0)(np.arange(10))
    assert permuted.tolist() == [1, 2, 9, 8, 7, 0, 4, 5, 3, 6]


@settings(max_examples=40, deadline=None)
@given(
    counts=st.lists(st.integers(0, 9), min_size=1, max_size=8).filter(any),
    mixed_shards=st.none() | st.integers(1, 4),
    lives=st.lists(
        st.tuples(st.integers(1, 4), st.integers(1, 9), st.integers(1, 5)), max_size=5
    ),
)
def test_each_sample_comes_once_an_epoch_over_changes_of_ranks(
    counts: list[int], mixed_shards: int | None, lives: list[tuple[int, int, int]]
) -> None:
    source = NumberedSource(tuple(counts), mixed_shards)
    seen: list[int] = []
    state = Reader(source, 1, rank=0, world_size=1).state_dict()
    for world_size, global_batch, steps in lives:
        readers = [
            Reader(source, global_batch=global_batch, rank=rank, world_size=world_size)
            for rank in range(world_size)
        ]
        for reader in readers:
            reader.load_state_dict(state)
        streams = [iter(reader) for reader in readers]
        for _ in range(steps):
            for reader, stream in zip(readers, streams, strict=True):
                batch = next(stream)
                seen += batch[: reader.ranges[0].count]
        state = readers[0].state_dict()
    total = sum(counts)
    for start in range(0, len(seen) - total + 1, total):
        assert sorted(seen[start : start + total]) == list(range(total))


def test_a_group_of_shards_is_read_before_the_next_begins() -> None:
    order = SampleOrder(np.full(12, 50), seed=1, mixed_shards=3)
    shards = order.locate(0, 600).shards.reshape(4, 150)
    groups = [set(group.tolist()) for group in shards]
    assert [len(group) for group in groups] == [3, 3, 3, 3]
    assert (np.diff(shards[0]) != 0).mean() > 0.5


def test_a_position_of_a_billion_is_reached_at_once() -> None:
    counts = np.full(2000, 1_000_000)
    began = time.monotonic()
    order = SampleOrder(counts, seed=1, mixed_shards=None)
    order.locate(10**9, 64)
    assert time.monotonic() - began < 1.0


def test_workers_of_a_loader_change_neither_order_nor_position(tmp_path: Path) -> None:
    _write_tokens(tmp_path)

    def take(workers: int, state: Any, steps: int) -> tuple[list[Any], Any]:
        source = Tokens(tmp_path, length=4)
        reader = Reader(
            source, global_batch=7, micro_batch=2, seed=3, rank=1, world_size=2
        )
        if state is not None:
            reader.load_state_dict(state)
        loader: Any = reader
        if workers:
            loader = DataLoader(reader, batch_size=None, num_workers=workers)
        feed = DataFeed(reader, None, torch.device("cpu"), _meter)
        batches = feed.batches(loader, to_device=False)
        taken = [batch.tolist() for batch in islice(batches, steps)]
        batches.close()  # type: ignore[attr-defined]
        return taken, reader.state_dict()

    alone, _ = take(0, None, 12)
    first, state = take(2, None, 6)
    second, end = take(1, state, 6)
    assert first + second == alone
    assert end["consumed"] == 12 // 2 * 7


def _meter() -> Meter:
    return Meter(first_step=0, until=1, world_size=1)


def _write_tokens(folder: Path) -> None:
    for number, records in enumerate(COUNTS):
        tokens = np.arange(records * 4 + number % 3, dtype=np.uint16) + 1000 * number
        if number % 2:
            tokens.tofile(folder / f"{number}.bin")
        else:
            np.save(folder / f"{number}.npy", tokens)


def _write_lines(folder: Path) -> None:
    for number, records in enumerate(COUNTS):
        lines = [json.dumps({"at": [number, record]}) for record in range(records)]
        (folder / f"{number}.jsonl").write_text("\n".join(lines) + "\n\n")


def _write_tars(folder: Path) -> None:
    for number, records in enumerate(COUNTS):
        with tarfile.open(folder / f"{number}.tar", "w") as archive:
            for record in range(records):
                for suffix in ("json", "cls.txt"):
                    data = json.dumps([number, record]).encode()
                    member = tarfile.TarInfo(f"a/{record:03}.{suffix}")
                    member.size = len(data)
                    archive.addfile(member, io.BytesIO(data))


def _all_of(source: Any) -> list[Any]:
    reader = Reader(source, 3, seed=1, rank=0, world_size=1)
    batches = list(islice(reader, sum(COUNTS) // 3))
    return [sample for batch in batches for sample in batch]


def _expected() -> list[list[int]]:
    return [
        [shard, record]
        for shard, records in enumerate(COUNTS)
        for record in range(records)
    ]


def test_lines_of_text_are_records(tmp_path: Path) -> None:
    _write_lines(tmp_path)
    source = Records(tmp_path, mixed_shards=2)
    assert sorted(sample["at"] for sample in _all_of(source)) == _expected()
    assert source[5] == {"at": [2, 0]}


def test_members_of_archives_are_records(tmp_path: Path) -> None:
    _write_tars(tmp_path)
    samples = _all_of(Records(tmp_path / "*.tar"))
    assert sorted(json.loads(sample["json"]) for sample in samples) == _expected()
    assert {sample["cls.txt"] for sample in samples} == {
        sample["json"] for sample in samples
    }
    assert samples[0]["__key__"].startswith("a/0")


def test_rows_of_parquet_files_are_records(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    for number, records in enumerate(COUNTS):
        at = [[number, record] for record in range(records)]
        table = arrow.table({"at": arrow.array(at, arrow.list_(arrow.int64()))})
        parquet.write_table(table, tmp_path / f"{number}.parquet")
    samples = _all_of(Records(tmp_path))
    assert sorted(sample["at"] for sample in samples) == _expected()
    (tmp_path / "2.parquet").write_bytes(b"PAR1 damaged PAR1")
    with pytest.raises(BadData, match=r"2\.parquet"):
        Records(tmp_path)


def test_whole_files_are_samples(tmp_path: Path) -> None:
    for number in range(27):
        (tmp_path / f"{number:02}.txt").write_text(str(number))
    source = Files(tmp_path, decode=lambda file: int(file["bytes"]))
    assert sorted(_all_of(source)) == list(range(27))
    (tmp_path / "05.txt").write_text("x5")
    with pytest.raises(BadData, match=r"05\.txt"):
        _all_of(source)


def test_an_empty_set_is_refused_with_its_path(tmp_path: Path) -> None:
    with pytest.raises(NoData, match=str(tmp_path)):
        Tokens(tmp_path, length=4)


def test_a_position_in_another_set_or_order_is_refused(tmp_path: Path) -> None:
    _write_tokens(tmp_path)
    source = Tokens(tmp_path, length=4)
    state = Reader(source, 1, rank=0, world_size=1).state_dict()
    np.arange(8, dtype=np.uint16).tofile(tmp_path / "new.bin")
    others = [
        Reader(Tokens(tmp_path, length=4), 1, rank=0, world_size=1),
        Reader(source, 1, seed=1, rank=0, world_size=1),
        Reader(source, 1, shuffle=False, rank=0, world_size=1),
    ]
    for other in others:
        with pytest.raises(DataChanged):
            other.load_state_dict(state)


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:5000])


def _garble_line(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b'{"at": [4, 7]}', b'{"at": [4,??]}'))


def _garble_header(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[4 * 1024 + 150] ^= 0xFF  # in the checksum of a header
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("write", "source", "damage", "offset"),
    [
        (_write_lines, Records, _garble_line, 7 * 15),
        (_write_tars, Records, _garble_header, 4 * 1024),
        (_write_tars, Records, _cut, None),
    ],
)
def test_damage_ends_the_job_with_file_and_offset(
    tmp_path: Path,
    write: Callable[[Path], None],
    source: Callable[[Path], Any],
    damage: Callable[[Path], None],
    offset: int | None,
) -> None:
    write(tmp_path)
    path = next(tmp_path.glob("4.*"))
    damage(path)
    with pytest.raises(BadData) as raised:
        _all_of(source(tmp_path))
    assert str(path) in str(raised.value)
    assert offset is None or f"byte {offset}:" in str(raised.value)


def test_a_shard_that_is_cut_after_the_start_is_named(tmp_path: Path) -> None:
    _write_tokens(tmp_path)
    source = Tokens(tmp_path, length=4)
    np.arange(3, dtype=np.uint16).tofile(tmp_path / "3.bin")
    with pytest.raises(BadData, match=r"3\.bin, byte 6: it has 6 bytes instead of 8"):
        _all_of(source)


def test_damage_that_is_over_at_the_second_reading_is_no_fault(tmp_path: Path) -> None:
    _write_lines(tmp_path)
    tries: list[Any] = []

    def decode(value: Any) -> Any:
        tries.append(value)
        if len(tries) == 1:
            raise ValueError("damaged on the way")
        return value["at"]

    assert sorted(_all_of(Records(tmp_path, decode=decode))) == _expected()


def test_an_index_shows_damage_that_no_format_shows(tmp_path: Path) -> None:
    _write_tokens(tmp_path)
    name = Tokens(tmp_path, length=4).write_index()
    assert name == str(tmp_path / INDEX_NAME)
    assert len(_all_of(Tokens(tmp_path, length=4, verify=True))) == 27
    data = bytearray((tmp_path / "3.bin").read_bytes())
    data[1] ^= 1
    (tmp_path / "3.bin").write_bytes(data)
    with pytest.raises(BadData, match=r"3\.bin: its SHA-256"):
        _all_of(Tokens(tmp_path, length=4, verify=True))
    (tmp_path / "3.bin").write_bytes(data[:-2])
    with pytest.raises(BadData, match=r"3\.bin, byte 6"):
        Tokens(tmp_path, length=4)


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    pytest.importorskip("obstore")
    with serving() as server:
        for name, value in server.env().items():
            monkeypatch.setenv(name, value)
        yield server.backend


def test_objects_are_fetched_and_fetched_again_when_damaged(
    bucket: Any, tmp_path: Path
) -> None:
    _write_lines(tmp_path)
    objects = bucket.objects
    for path in tmp_path.iterdir():
        objects[f"set/{path.name}"] = path.read_bytes()
    source = Records("s3://bucket/set", mixed_shards=1)
    assert sorted(sample["at"] for sample in _all_of(source)) == _expected()
    again = pickle.loads(pickle.dumps(source))
    assert len(_all_of(again)) == 27
    objects["set/4.jsonl"] = objects["set/4.jsonl"].replace(b"[4, 7]", b"[4,??]")
    again = pickle.loads(pickle.dumps(source))
    with pytest.raises(BadData, match=r"s3://.*/set/4\.jsonl, byte 105: .* fetched"):
        _all_of(again)


def test_the_wait_for_data_is_divided_into_its_parts() -> None:
    class SlowSource(NumberedSource):
        def read(self, locations: SampleLocations) -> Any:
            with self.times.measure(READ):
                time.sleep(0.03)
            with self.times.measure(DECODE):
                time.sleep(0.01)
            return torch.tensor(super().read(locations))

    reader = Reader(SlowSource((9,), None), 1, rank=0, world_size=1)
    meter = _meter()
    feed = DataFeed(reader, None, torch.device("cpu"), lambda: meter)
    list(islice(feed.batches(reader, to_device=True), 3))
    parts = meter.read_seconds + meter.decode_seconds + meter.copy_seconds
    assert parts == pytest.approx(meter.data_seconds, rel=0.01)
    assert 0.5 < meter.read_seconds / meter.data_seconds < 0.9
    assert meter.beat(1, time.monotonic())["data_decode_seconds"] > 0
