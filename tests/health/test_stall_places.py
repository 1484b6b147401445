"""Where a main thread stands, from its calls."""

import pytest

from corral.domain.hang import FRAME_LETTERS, StallPhase
from corral.domain.process_stacks import StackFrame
from corral.health.stall_places import (
    call_chain,
    phase_of,
    place_of,
    waits_for_a_person,
    waits_for_ranks,
)

PACKAGES = "/venv/lib/python3.11/site-packages"


def calls(*texts: str) -> list[StackFrame]:
    """Calls from "file:line function", the innermost first."""
    frames = []
    for text in texts:
        place, function = text.split(" ")
        file, _, line = place.rpartition(":")
        frames.append(StackFrame(function=function, file=file, line=int(line)))
    return frames


BACKWARD = calls(
    f"{PACKAGES}/torch/autograd/graph.py:824 _engine_run_backward",
    f"{PACKAGES}/torch/autograd/__init__.py:347 backward",
    f"{PACKAGES}/torch/_tensor.py:581 backward",
    "train.py:30 main",
)
BARRIER = calls(
    f"{PACKAGES}/torch/distributed/distributed_c10d.py:4551 barrier",
    f"{PACKAGES}/torch/distributed/c10d_logger.py:81 wrapper",
    "train.py:40 main",
)
LOADER = calls(
    "selectors.py:415 select",
    "multiprocessing/connection.py:947 wait",
    "multiprocessing/queues.py:113 get",
    f"{PACKAGES}/torch/utils/data/dataloader.py:1291 _try_get_data",
    "train.py:7 main",
)
TORCH_SAVE = calls(f"{PACKAGES}/torch/serialization.py:900 _save", "train.py:55 main")


@pytest.mark.parametrize(
    ("frames", "place"),
    [
        (BACKWARD, "train.py:30 in main"),
        (LOADER, "train.py:7 in main"),
        (calls("train.py:18 load", "train.py:30 main"), "train.py:18 in load"),
        (
            calls(f"{PACKAGES}/datasets/arrow.py:5 read", "train.py:30 main"),
            "datasets/arrow.py:5 in read",
        ),
        (calls("/home/ann/project/src/net.py:3 forward"), "net.py:3 in forward"),
        (calls("/usr/lib/python3.11/queue.py:171 get"), "queue.py:171 in get"),
        ([], ""),
    ],
)
def test_the_place_is_the_innermost_call_of_the_program(
    frames: list[StackFrame], place: str
) -> None:
    assert place_of(frames) == place


def test_a_place_is_short() -> None:
    assert len(place_of(calls(f"{'a' * 400}.py:1 main"))) == FRAME_LETTERS


@pytest.mark.parametrize(
    ("frames", "waits"),
    [
        (BACKWARD, True),
        (BARRIER, True),
        (
            calls(
                f"{PACKAGES}/torch/_ops.py:1 __call__",
                f"{PACKAGES}/torch/distributed/_functional_collectives.py:1 wait_tensor",
            ),
            True,
        ),
        # a hook of the program runs inside the backward pass
        ([*calls("train.py:9 hook"), *BACKWARD], False),
        (
            calls(f"{PACKAGES}/torch/distributed/checkpoint/filesystem.py:1 write"),
            False,
        ),
        (calls(f"{PACKAGES}/torch/distributed/elastic/agent.py:1 run"), False),
        (LOADER, False),
        ([], False),
    ],
)
def test_a_rank_waits_for_others_in_a_collective(
    frames: list[StackFrame], waits: bool
) -> None:
    assert waits_for_ranks(frames) is waits


@pytest.mark.parametrize(
    ("frames", "phase"),
    [
        (LOADER, StallPhase.DATA),
        (TORCH_SAVE, StallPhase.SAVE),
        (calls("train.py:9 save_checkpoint", "train.py:3 main"), StallPhase.SAVE),
        (calls("train.py:9 forward", "train.py:3 evaluate"), StallPhase.EVALUATE),
        (calls("train.py:9 validate_epoch"), StallPhase.EVALUATE),
        ([*LOADER, *calls("train.py:3 evaluate")], StallPhase.EVALUATE),
        ([*TORCH_SAVE, *calls("train.py:3 evaluate")], StallPhase.SAVE),
        (calls("data.py:9 __getitem__"), StallPhase.DATA),
        (calls("train.py:9 load", "train.py:3 main"), StallPhase.COMPUTE),
        (calls("train.py:9 train_and_save"), StallPhase.COMPUTE),
        (calls("train.py:9 load_checkpoint"), StallPhase.COMPUTE),
        (calls("/checkpoints/ann/train.py:9 main"), StallPhase.COMPUTE),
        (calls(f"{PACKAGES}/torch/utils/checkpoint.py:9 forward"), StallPhase.COMPUTE),
        (BACKWARD, StallPhase.COMPUTE),
    ],
)
def test_names_of_calls_show_the_phase(
    frames: list[StackFrame], phase: StallPhase
) -> None:
    assert phase_of(frames) is phase


def test_a_debugger_waits_for_a_person() -> None:
    assert waits_for_a_person(calls("/usr/lib/python3.11/pdb.py:3 cmdloop"))
    assert not waits_for_a_person(BACKWARD)


def test_lines_do_not_change_the_chain_of_calls() -> None:
    assert call_chain(calls("a.py:1 f")) == call_chain(calls("a.py:2 f"))
    assert call_chain(calls("a.py:1 f")) != call_chain(calls("a.py:1 g"))
