"""Logs are bounded, say what they dropped, and are read by one running offset."""

import json
import resource
import time
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from corral.agent import output_capture
from corral.agent.output_capture import BURST_BYTES, BYTES_PER_SECOND, RankLog
from tests.agent.nodes import launch_of, node, stop_of

MIB = 1024 * 1024


class Clock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def read_all(file: Path, offset: int = 0, step: int = 700) -> tuple[int, bytes]:
    """Where what is left begins, and all of it."""
    begin, content = output_capture.read(file, offset, step)
    at = begin + len(content)
    while data := output_capture.read(file, at, step)[1]:
        content += data
        at += len(data)
    return begin, content


@settings(max_examples=50, deadline=None)
@given(
    parts=st.lists(st.binary(min_size=1, max_size=900), max_size=40),
    offset=st.integers(0, 9000),
)
def test_any_offset_reads_on_from_there_through_rotations(
    tmp_path_factory: object, parts: list[bytes], offset: int
) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rank-0.log"
        log = RankLog(file, Clock(), kept_bytes=2000)
        whole = b""
        for part in parts:
            log.write(part)
            whole += part
            begin, data = output_capture.read(file, max(0, len(whole) - 500), 4000)
            assert whole[begin : begin + len(data)] == data
        begin, rest = read_all(file, offset)
        assert rest == whole[begin:] or offset >= len(whole)
        assert begin == offset or not rest or begin > offset
        assert len(whole) - begin <= 2000 or offset >= begin
        assert (
            sum(one.stat().st_size for one in Path(folder).glob("*.log*")) <= 2000 + 200
        )
        assert output_capture.end(file) == len(whole)
        log.close()


def test_a_flood_is_cut_to_the_rate_and_the_rest_is_counted(tmp_path: Path) -> None:
    clock, file = Clock(), tmp_path / "rank-0.log"
    log = RankLog(file, clock, kept_bytes=1024 * MIB)
    given = 0
    for _ in range(96):  # 192 MB in 3 s
        log.write(b"x" * 2_000_000)
        given += 2_000_000
        clock.seconds += 1 / 32
    clock.seconds += 100
    log.write(b"calm\n")
    log.close()
    content = file.read_bytes()
    kept = content.count(b"x")
    assert kept <= BURST_BYTES + 3 * BYTES_PER_SECOND
    assert kept >= BURST_BYTES + 2 * BYTES_PER_SECOND
    notes = [
        line for line in content.split(b"\n") if b"bytes were dropped here" in line
    ]
    assert given - kept == sum(int(note.split()[1]) for note in notes)
    assert content.endswith(b"calm\n")


def test_what_a_full_disk_drops_is_counted(tmp_path: Path) -> None:
    file = tmp_path / "rank-0.log"
    log = RankLog(file, Clock())
    log.write(b"before\n")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (7, hard))  # writing fails with EFBIG
    try:
        log.write(b"lost\n")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    log.write(b"after\n")
    log.close()
    assert "[corral] 5 bytes were dropped here: File too large" in file.read_text()
    assert file.read_text().startswith("before\n")
    assert file.read_text().endswith("after\n")


def test_a_mark_that_names_no_file_hides_it_until_the_rotation_is_done(
    tmp_path: Path,
) -> None:
    file = tmp_path / "rank-0.log"
    (tmp_path / "rank-0.log.1").write_bytes(b"old")
    file.write_bytes(b"current")
    marks = {str(file.stat().st_ino): 100}
    (tmp_path / "rank-0.log.at").write_text(json.dumps(marks))
    assert output_capture.read(file, 0, 50) == (100, b"current")
    assert output_capture.read(file, 105, 50) == (105, b"nt")


async def test_a_flood_hurts_neither_shim_nor_neighbour(node_dir: Path) -> None:
    began = time.monotonic()
    async with node(node_dir) as here:
        floods = {
            "yes": "exec yes 'a line of text that goes on'",
            "noise": "exec cat /dev/urandom",
            "wide": "exec head -c 200000000 /dev/zero",
        }
        keys = {
            name: await here.launch(launch_of(run, name))
            for name, run in floods.items()
        }
        await here.ended(keys["wide"])
        seconds = time.monotonic() - began
        assert (await here.exit_of("echo calm", "calm")).code == 0
        for name in ("yes", "noise"):
            folder = here.work(keys[name]).parent
            log = folder / "logs" / "rank-0.log"
            await here.until(lambda log=log: output_capture.end(log) >= 8 * MIB)  # type: ignore[misc]
            shim = (folder / "shim.pid").read_text().split()[0]
            status = Path(f"/proc/{shim}/status").read_text()
            grown = int(status.split("RssAnon:")[1].split()[0])
            assert grown < 30_000  # kB
            here.supervisor.stop(stop_of(keys[name], 0.5))
            await here.ended(keys[name])
        wide = here.work(keys["wide"]).parent / "logs/rank-0.log"
        assert (
            output_capture.end(wide) <= BURST_BYTES + seconds * BYTES_PER_SECOND + MIB
        )
