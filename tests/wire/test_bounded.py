"""Messages of agents within bounds: what is wrong is left out, and nothing else."""

from dataclasses import replace
from math import inf, nan
from typing import Any

import msgspec
import pytest

from corral.domain.attempt import Exit, Save
from corral.domain.hang import FRAME_LETTERS, NodeHang, RankLook, RankState
from corral.domain.ids import AttemptNumber, JobId
from corral.domain.node_signal import Signal, SignalKind
from corral.domain.observed_state import Phase, Progress, Seen
from corral.domain.telemetry import GpuSample, NodeSample, PortSample
from corral.wire.agent_messages import Heartbeat, encode
from corral.wire.bounded_decoding import read_frame

KEY = (JobId("j1"), AttemptNumber(1))
SAVE = Save(
    job=KEY[0], attempt=KEY[1], step=4, path="/x", manifest_sha256="", size_bytes=1, seconds=1.0,
    stall_seconds=0.0, at=1.0,
)  # fmt: skip
SEEN = Seen(
    key=KEY,
    phase=Phase.UP,
    exits=((0, Exit(code=1)),),
    progress=Progress(step=3, loss=0.5),
    saves=(SAVE,),
    trouble="why",
    tails=((0, "last words"),),
    image="sha256:ab",
    waits_for_input=2,
    is_ready=False,
    probe_text="GET /health: 503",
    address="fd00::12",
)
SIGNAL = Signal(number=1, at=1.0, kind=SignalKind.XID, text="XID 79")
SAMPLE = NodeSample(
    at=1.0,
    gpus=(GpuSample(index=0, uuid="GPU-1"),),
    ports=(PortSample(name="eth0", kind="ethernet", up=True),),
)
BEAT = Heartbeat(number=1, version=None, seen=(SEEN,), sample=SAMPLE, signals=(SIGNAL,))


def changed(**seen: Any) -> bytes:
    message = msgspec.to_builtins(BEAT)
    message["seen"][0].update(seen)
    return encode(message)


def replace_seen(seen: Seen) -> Heartbeat:
    return msgspec.structs.replace(BEAT, seen=(seen,))


def save(**fields: Any) -> dict[str, Any]:
    whole: dict[str, Any] = msgspec.to_builtins(SAVE)
    return whole | fields


def test_a_message_within_bounds_is_read_as_it_is() -> None:
    read = read_frame(encode(BEAT))
    assert (read.message, read.dropped) == (BEAT, ())


@pytest.mark.parametrize(
    "bad",
    [
        {"step": 2**63}, {"step": -1}, {"seconds": nan}, {"stall_seconds": inf}, {"at": 1e300},
        {"path": "/\0"}, {"path": "/" * 5_000}, {"size_bytes": 2**64 - 1}, {"step": "seven"},
    ],
)  # fmt: skip
def test_a_bad_save_is_left_out_and_everything_else_stays(bad: dict[str, Any]) -> None:
    read = read_frame(changed(saves=[save(**bad), save()]))
    assert read.message == BEAT
    ((what, key, why),) = read.dropped
    assert (what, key) == ("save", KEY)
    assert why


def test_a_loss_that_is_no_number_takes_no_progress_with_it() -> None:
    read = read_frame(changed(progress={"step": 3, "loss": nan}))
    assert isinstance(read.message, Heartbeat)
    assert read.message.seen[0].progress == Progress(step=3, loss=None)
    assert read.dropped == ()


def test_an_attempt_is_kept_by_its_key_and_phase_however_bad_the_rest_is() -> None:
    more = {
        "image": [],
        "trouble": 3,
        "waits_for_input": -1,
        "is_ready": 2,
        "address": 1,
    }
    read = read_frame(
        changed(started_at=nan, exits=7, saves={}, tails=1.5, probe_text=3, **more)
    )
    assert isinstance(read.message, Heartbeat)
    assert read.message.seen == (Seen(key=KEY, phase=Phase.UP, progress=SEEN.progress),)
    assert len(read.dropped) == 10


@pytest.mark.parametrize(
    ("bad", "without", "dropped"),
    [
        ({"probe_text": "x" * 201}, replace(SEEN, probe_text=""), "probe text"),
        ({"probe_text": "a\nb"}, replace(SEEN, probe_text=""), "probe text"),
        ({"is_ready": "yes"}, replace(SEEN, is_ready=None), "is ready"),
        ({"address": "10.0.0.1/a"}, replace(SEEN, address=""), "address"),
        ({"address": "a@10.0.0.1"}, replace(SEEN, address=""), "address"),
        ({"address": "x" * 254}, replace(SEEN, address=""), "address"),
    ],
)
def test_a_result_of_a_probe_out_of_bounds_is_left_out(
    bad: dict[str, Any], without: Seen, dropped: str
) -> None:
    read = read_frame(changed(**bad))
    assert isinstance(read.message, Heartbeat)
    assert read.message.seen == (without,)
    assert [(one.what, one.key) for one in read.dropped] == [(dropped, KEY)]


def hang(**changes: Any) -> NodeHang:
    look = RankLook(
        rank=1, pid=7, step=3, state=RankState.STOPPED, frame="train.py:18 in load"
    )
    looks = ((replace(look, **changes),), (look,))
    return NodeHang(rank_looks=looks, stalled_seconds=11.0, bound_seconds=10.0)


def test_a_report_of_a_stall_is_read_as_it_is() -> None:
    seen = replace(SEEN, hang=hang())
    read = read_frame(encode(replace_seen(seen)))
    assert isinstance(read.message, Heartbeat)
    assert (read.message.seen, read.dropped) == ((seen,), ())


@pytest.mark.parametrize(
    "bad",
    [
        hang(frame="x" * (FRAME_LETTERS + 1)),
        hang(frame="a\nb"),
        hang(rank=-1),
        hang(operation="x" * 257),
        replace(hang(), rank_looks=((hang().rank_looks[0] * 65), ())),
        replace(hang(), stalled_seconds=float("inf")),
    ],
)
def test_a_report_of_a_stall_out_of_bounds_is_left_out(bad: NodeHang) -> None:
    read = read_frame(encode(replace_seen(replace(SEEN, hang=bad))))
    assert isinstance(read.message, Heartbeat)
    assert read.message.seen == (SEEN,)
    assert [(one.what, one.key) for one in read.dropped] == [("hang", KEY)]


def test_texts_for_people_are_cut_and_cleaned_instead_of_left_out() -> None:
    read = read_frame(
        changed(trouble="x\0\x1b" + "y" * 9_000, tails=[[0, "a\0b\x1b[31m"]])
    )
    assert isinstance(read.message, Heartbeat)
    (seen,) = read.message.seen
    assert seen.trouble.startswith("x??yyy")
    assert len(seen.trouble) == 1_000
    assert seen.tails == ((0, "a?b\x1b[31m"),)


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("sample", {"at": nan}),
        (
            "sample",
            {"at": 1.0, "gpus": [{"index": 0, "uuid": "a"}, {"index": 0, "uuid": "b"}]},
        ),
        ("sample", {"at": 1.0, "gpus": [{"index": 2**20, "uuid": "a"}]}),
        ("sample", {"at": 1.0, "ports": [{"name": "p", "kind": "a\nb", "up": True}]}),
        ("inventory", {"labels": [["a", "b"], ["a", "c"]]}),
        ("inventory", {"memory_bytes": 2**63}),
    ],
)
def test_a_bad_sample_or_inventory_is_left_out_as_a_whole(
    part: str, value: Any
) -> None:
    read = read_frame(encode({**msgspec.to_builtins(BEAT), part: value}))
    assert isinstance(read.message, Heartbeat)
    assert getattr(read.message, part) is None
    assert read.message.seen == BEAT.seen
    assert [one.what for one in read.dropped] == [part]


def test_too_many_of_anything_are_cut_off() -> None:
    message = msgspec.to_builtins(BEAT)
    message["signals"] = [{**message["signals"][0], "number": n} for n in range(1_000)]
    read = read_frame(encode(message))
    assert isinstance(read.message, Heartbeat)
    assert [one.number for one in read.message.signals] == list(range(256))


@pytest.mark.parametrize(
    "frame", [b"", b"\xc1", b"\xdd\xff\xff\xff\xff", b"\x91" * 100_000]
)
def test_what_is_no_message_is_refused(frame: bytes) -> None:
    with pytest.raises((ValueError, RecursionError)):
        read_frame(frame)
