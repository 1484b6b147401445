"""Wanted state as frames: whole where it fits, in parts where it does not."""

from corral.api.desired_state_frames import LAUNCH_BYTES, word_frame
from corral.domain.attempt import Seat
from corral.domain.desired_state import DesiredState, Launch, Stop, Version
from corral.domain.ids import AttemptNumber, ClusterId, JobId, NodeId
from corral.domain.job import Per
from corral.domain.observed_state import AttemptKey
from corral.wire.agent_messages import FRAME_BYTES, WantedNow, from_head

NODE = NodeId("n1")


def launch(number: int, *, characters: int = 10) -> Launch:
    return Launch(
        key=(JobId(f"j{number}"), AttemptNumber(1)), job_name="a", seat=Seat(node=NODE),
        node_rank=0, nodes=("127.0.0.1",), first_rank=0, ranks=1, world_size=1,
        master_address="127.0.0.1", master_port=1, run="true", setup=None, per=Per.NODE,
        env=(("V", "x" * characters),), secrets=(), workdir=None, owner="ann", array_index=None,
        checkpoint=None, resume=(), grace_seconds=30.0, node_mtbf_seconds=1e6,
    )  # fmt: skip


def wanted(*launches: Launch) -> DesiredState:
    stops = (
        Stop(
            key=(JobId("j99"), AttemptNumber(1)), grace_seconds=1.0, save=False, why="x"
        ),
    )
    version = Version(term=1, counter=2)
    return DesiredState(
        cluster=ClusterId("c"), version=version, node=NODE, run=launches, stop=stops
    )


def framed(word: DesiredState, seen: set[AttemptKey]) -> tuple[list[AttemptKey], bool]:
    """Keys of the launches that one frame carries, and whether these are all."""
    frame, is_whole = word_frame(word, seen)
    assert len(frame) <= FRAME_BYTES
    message = from_head(frame)
    assert isinstance(message, WantedNow)
    assert (message.wanted.version, message.wanted.stop) == (word.version, word.stop)
    return [one.key for one in message.wanted.run], is_whole


def test_a_word_that_fits_goes_whole_also_to_a_node_that_reports_all_of_it() -> None:
    word = wanted(launch(1), launch(2))
    keys = [one.key for one in word.run]
    assert framed(word, set()) == (keys, True)
    assert framed(word, set(keys)) == (keys, True)


def test_a_word_too_long_for_a_frame_arrives_in_parts_each_launch_once() -> None:
    large = LAUNCH_BYTES // 3
    word = wanted(*(launch(number, characters=large) for number in range(8)))
    seen: set[AttemptKey] = set()
    frames = 0
    while len(seen) < len(word.run):
        keys, is_whole = framed(word, seen)
        assert not is_whole
        assert keys
        assert not seen.intersection(keys)
        seen.update(keys)
        frames += 1
    assert frames == 4  # two launches each: a third one would exceed LAUNCH_BYTES


def test_a_launch_larger_than_its_part_of_a_frame_goes_alone() -> None:
    word = wanted(launch(1, characters=LAUNCH_BYTES + 10), launch(2))
    first = word.run[0].key
    assert framed(word, set()) == ([first], False)
    assert framed(word, {first}) == ([word.run[1].key], False)
