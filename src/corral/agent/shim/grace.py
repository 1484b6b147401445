"""Ending what is left: SIGTERM once to each, a grace, then SIGKILL until nothing is.

A shell that somebody was let into is hung up on instead: at a terminal it is deaf to SIGTERM."""

import os
import signal
from collections.abc import Callable, Collection
from typing import Final

from corral.agent.containment import Containment
from corral.agent.processes import children, send, words_of
from corral.agent.shim.loop import Loop

LOOK_SECONDS: Final = 0.05  # between looks at what is left, while it may end by itself
KILL_SECONDS: Final = 0.01  # between rounds of SIGKILL, at first
SLOWEST_KILL_SECONDS: Final = 0.2
SHELL: Final = "/bin/bash" if os.access("/bin/bash", os.X_OK) else "/bin/sh"


class Grace:
    """`look` is called again whenever there is something to be done or to be seen."""

    def __init__(self, loop: Loop, group: Containment, look: Callable[[], None]) -> None:
        self._loop = loop
        self._group = group
        self._look = look
        self._deadline: float | None = None  # what is left then is killed
        self._told: set[int] = set()
        self._childless: set[int] = set()
        self._kill_seconds = KILL_SECONDS
        self._looks = False

    @property
    def runs(self) -> bool:
        return self._deadline is not None

    def begin(self, seconds: float) -> None:
        """Again: a shorter grace cuts a running one short, a longer one changes nothing."""
        deadline = self._loop.now() + max(0.0, seconds)
        if self._deadline is None or deadline < self._deadline:
            self._deadline = deadline
            self._loop.later(max(0.0, seconds), self._look)

    def tell_again(self, pid: int) -> None:
        """SIGTERM may have met it before it could act on it."""
        self._told.discard(pid)

    def act(
        self, left: Collection[int], shells: Collection[int], attached: Collection[int]
    ) -> None:
        """Do to these processes what its time has come for. `shells` run the ranks' commands;
        `attached` are those of people."""
        assert self._deadline is not None
        if self._loop.now() < self._deadline:
            self._terminate(left, shells, attached)
            self._look_again(LOOK_SECONDS)
        else:
            self._group.kill()
            self._look_again(self._kill_seconds)
            self._kill_seconds = min(self._kill_seconds * 1.3, SLOWEST_KILL_SECONDS)

    def _look_again(self, seconds: float) -> None:
        if not self._looks:
            self._looks = True
            self._loop.later(seconds, self._looked)

    def _looked(self) -> None:
        self._looks = False
        self._look()

    def _terminate(
        self, left: Collection[int], shells: Collection[int], attached: Collection[int]
    ) -> None:
        """Not to the shell of a command while that runs: it would be gone before what it waits for,
        and the exit code with it."""
        for pid in left:
            if pid in self._told:
                continue
            if pid in shells and words_of(pid)[:2] == [SHELL.encode(), b"-c"]:
                if children(pid):
                    self._childless.discard(pid)
                    continue
                if self._may_be_ending(pid):
                    continue
            send(pid, signal.SIGHUP if pid in attached else signal.SIGTERM)
            self._told.add(pid)

    def _may_be_ending(self, shell: int) -> bool:
        """A shell whose command has just ended has until the next look to end with its code."""
        fresh = shell not in self._childless and bool(self._told)
        self._childless.add(shell)
        return fresh
