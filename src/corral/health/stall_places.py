"""Places of main threads in jobs that make no steps: where a rank stands, whether it
waits for other ranks, and in which phase of its work it is."""

import re
from collections.abc import Iterable, Sequence
from typing import Final

from corral.domain.hang import FRAME_LETTERS, StallPhase
from corral.domain.process_stacks import StackFrame

# Calls between a program and the function that waits.
_WRAPPERS: Final = re.compile(
    r"(?:^|/)(?:contextlib\.py|functools\.py|torch/_ops\.py|torch/_compile\.py"
    r"|torch/utils/_contextlib\.py|torch/distributed/c10d_logger\.py"
    r"|torch/_dynamo/.{1,80}\.py|torch/nn/modules/module\.py"
    r"|corral/train/wait_time\.py)$"
)
_COLLECTIVE_FILES: Final = re.compile(
    r"(?:^|/)(?:torch/distributed/(?!elastic/|checkpoint/|launch|run\.py)"
    r"|torch/nn/parallel/distributed\.py|deepspeed/comm/|horovod/|mpi4py/"
    r"|corral/train/(?:process_group|stop_agreement)\.py|torchft/process_group\.py)"
)
_BACKWARD: Final = "_engine_run_backward"  # in which DDP waits for gradients
_STANDARD: Final = re.compile(
    r"(?:^|/)(?:lib/python3(?:\.\d+)?/(?!(?:site|dist)-packages/)|<frozen )"
    r"|^(?:threading|selectors|contextlib|functools|queue|socket|ssl|subprocess"
    r"|runpy|traceback)\.py$|^(?:multiprocessing|concurrent|importlib|asyncio)/"
)
_TORCH: Final = re.compile(r"(?:^|/)(?:torch|corral/train)/")
_DEBUGGERS: Final = re.compile(r"(?:^|/)(?:pdb|bdb|ipdb|debugpy|IPython)(?:\.py|/)")
_DATA: Final = re.compile(
    r"(?:^|/)(?:torch/utils/data|torchdata|litdata|webdataset|datasets)/"
    r"|(?:^| )(?:__getitem__|next_data|fetch_batch|next_batch|load_batch)$"
)
_SAVE_FILES: Final = re.compile(
    r"(?:^|/)(?:torch/serialization\.py|torch/distributed/checkpoint/"
    r"|corral/train/save/|safetensors/)"
)
_SAVE: Final = re.compile(
    r"(?i)(?:^|_)(?:checkpoint|ckpt|snapshot|save|saves|saving|savez|dump|export|upload)"
    r"(?:$|_)"
)
_EVALUATE: Final = re.compile(
    r"(?i)(?:^|_)(?:eval|evals|evaluate|evaluation|evaluating|valid|validate|val"
    r"|validation|infer|inference|predict|predictions|generate|benchmark)(?:$|_)"
)
# Functions whose names also say that they do other work, such as train_and_save.
_OTHER_WORK: Final = re.compile(r"(?i)train|fit|main|loop|step|resume|load|restore")


def place_of(frames: Sequence[StackFrame]) -> str:
    """Return the place that shows where a thread stands: the innermost call of the
    program or its libraries, such as "train.py:18 in load"; "" without a call.

    Args:
        frames: The calls, the innermost first.
    """
    if not frames:
        return ""
    shown = next(
        (
            frame
            for frame in frames
            if not _STANDARD.search(frame.file) and not _TORCH.search(frame.file)
        ),
        frames[0],
    )
    file = shown.file.rpartition("site-packages/")[2]
    if file.startswith("/"):
        file = "/".join(file.split("/")[-2:]) if _is_library(shown) else _name(file)
    text = f"{file}:{shown.line} in {shown.function}"
    return text if len(text) <= FRAME_LETTERS else text[-FRAME_LETTERS:]


def waits_for_ranks(frames: Sequence[StackFrame]) -> bool:
    """Return whether a thread waits for other ranks in a collective operation."""
    innermost = next(
        (frame for frame in frames if not _WRAPPERS.search(frame.file)), None
    )
    return innermost is not None and (
        innermost.function == _BACKWARD
        or _COLLECTIVE_FILES.search(innermost.file) is not None
    )


def waits_for_a_person(frames: Sequence[StackFrame]) -> bool:
    """Return whether a thread stands in a debugger."""
    return any(_DEBUGGERS.search(frame.file) for frame in frames)


def phase_of(frames: Sequence[StackFrame]) -> StallPhase:
    """Return the phase of work that the names of calls show; COMPUTE if none does. A
    save within an evaluation is a save, and both read data."""
    shown_phases = {_phase_of_call(frame) for frame in frames}
    return next(
        (
            phase
            for phase in (StallPhase.SAVE, StallPhase.EVALUATE, StallPhase.DATA)
            if phase in shown_phases
        ),
        StallPhase.COMPUTE,
    )


def _phase_of_call(frame: StackFrame) -> StallPhase:
    if _SAVE_FILES.search(frame.file):
        return StallPhase.SAVE
    if _DATA.search(frame.file) or _DATA.search(frame.function):
        return StallPhase.DATA
    if _OTHER_WORK.search(frame.function):
        return StallPhase.COMPUTE
    if _SAVE.search(frame.function):
        return StallPhase.SAVE
    if _EVALUATE.search(frame.function):
        return StallPhase.EVALUATE
    return StallPhase.COMPUTE


def call_chain(frames: Iterable[StackFrame]) -> tuple[tuple[str, str], ...]:
    """Return the calls without their lines, by which a loop in one function is the same
    place."""
    return tuple((frame.file, frame.function) for frame in frames)


def _is_library(frame: StackFrame) -> bool:
    return "site-packages/" in frame.file or "dist-packages/" in frame.file


def _name(path: str) -> str:
    return path.rpartition("/")[2]
