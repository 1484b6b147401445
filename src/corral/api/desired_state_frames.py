"""Desired state as frames for agents. A state that is too long for one frame is sent in
parts."""

from collections.abc import Set
from dataclasses import replace
from typing import Final

from corral.domain.desired_state import DesiredState, Launch
from corral.domain.observed_state import AttemptKey
from corral.wire.agent_messages import FRAME_BYTES, WantedNow, encode

LAUNCH_BYTES: Final = FRAME_BYTES // 2  # of launches in a word that goes in parts


def word_frame(wanted: DesiredState, seen: Set[AttemptKey]) -> tuple[bytes, bool]:
    """Return the desired state as a frame, and whether the frame holds all of it.

    `seen`: the attempts that the node reports. If the state is too long, these attempts
    are left out, and so are launches beyond LAUNCH_BYTES. Those launches follow once
    the node reports the first ones.
    """
    if sum(map(_characters, wanted.run)) < LAUNCH_BYTES:
        frame = encode(WantedNow(wanted))
        if len(frame) <= FRAME_BYTES:
            return frame, True
    run: list[Launch] = []
    remaining_bytes = LAUNCH_BYTES
    for launch in (candidate for candidate in wanted.run if candidate.key not in seen):
        remaining_bytes -= len(encode(WantedNow(replace(wanted, run=(launch,)))))
        if remaining_bytes < 0 and run:
            break
        run.append(launch)
    return encode(WantedNow(replace(wanted, run=tuple(run)))), False


def _characters(launch: Launch) -> int:
    size = len(launch.run) + len(launch.setup or "")
    return size + sum(len(name) + len(value) for name, value in launch.env)
