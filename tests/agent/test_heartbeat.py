"""An attempt that cannot be encoded, or is too large, holds up no other."""

from dataclasses import replace

import msgspec

from corral.agent.heartbeat import encoded
from corral.agent.shim.state import is_within, of_journal, progress_record
from corral.domain.attempt import Save
from corral.domain.bounds import HEARTBEAT_BYTES
from corral.domain.ids import AttemptNumber, JobId
from corral.domain.observed_state import Phase, Seen
from corral.wire.agent_messages import Heartbeat, from_agent

ONE, TWO = ((JobId(name), AttemptNumber(1)) for name in ("j1", "j2"))
SAVE = Save(
    job=ONE[0], attempt=ONE[1], step=4, path="/x", manifest_sha256="", size_bytes=1, seconds=1.0,
    stall_seconds=0.0, at=1.0,
)  # fmt: skip


def sent(*seen: Seen) -> tuple[Heartbeat, tuple[str, ...]]:
    frame, left_out = encoded(Heartbeat(number=1, version=None, seen=seen))
    assert len(frame) <= HEARTBEAT_BYTES + 1024
    beat = from_agent(frame)
    assert isinstance(beat, Heartbeat)
    return beat, left_out


def test_what_cannot_be_encoded_is_left_out_of_its_own_attempt() -> None:
    other = Seen(key=TWO, phase=Phase.UP, saves=(replace(SAVE, job=TWO[0]),))
    for bad in (replace(SAVE, path="\ud800"), replace(SAVE, step=2**64)):
        beat, left_out = sent(Seen(key=ONE, phase=Phase.UP, saves=(bad, SAVE)), other)
        assert beat.seen == (Seen(key=ONE, phase=Phase.UP, saves=(SAVE,)), other)
        assert left_out == ("a part of the report of attempt 1 of j1",)


def test_what_is_too_large_is_told_shorter() -> None:
    long = tuple((rank, "x" * 4096) for rank in range(300))
    many = [Seen(key=ONE, phase=Phase.ENDED, tails=long, trouble="t") for _ in range(5)]
    beat, _ = sent(*many)
    assert [one.phase for one in beat.seen] == [Phase.ENDED] * 5
    assert all(one.trouble == "t" and not one.tails for one in beat.seen)


def test_a_heartbeat_that_is_right_is_sent_as_it_is() -> None:
    beat, left_out = sent(Seen(key=ONE, phase=Phase.UP, saves=(SAVE,)))
    assert (beat.seen[0].saves, left_out) == ((SAVE,), ())


def test_a_journal_with_a_bad_save_of_an_older_shim_is_read_without_it() -> None:
    record = {
        name: value
        for name, value in msgspec.to_builtins(SAVE).items()
        if name != "job"
    }
    good = {"type": "save", **record}
    state = of_journal([{**good, "step": 2**63}, {**good, "path": "\ud800"}, good])
    assert [save["step"] for save in state.saves] == [4]
    assert state.dropped == 2
    assert is_within(record)
    assert not is_within(record | {"seconds": float("nan")})


def test_a_loss_that_is_not_finite_is_none() -> None:
    assert progress_record({"step": 1, "loss": float("nan")}, 1.0)["loss"] is None
    assert progress_record({"step": 1}, 1.0)["memory_step"] is None
    assert progress_record({"step": 1, "memory_step": 7}, 1.0)["memory_step"] == 7
