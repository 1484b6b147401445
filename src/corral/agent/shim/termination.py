"""Termination of the remaining processes: SIGTERM once to each, a grace period, then
SIGKILL.

SIGKILL is repeated until no process is left. A process that was started in answer to
SIGTERM, to save or to clean up, has the grace period to finish. An attached user's
shell receives SIGHUP instead, because it ignores SIGTERM at a terminal.
"""

import os
import signal
from collections.abc import Callable, Collection
from typing import Final

from corral.agent.containment import Containment
from corral.agent.processes import catches, children, parent_of, send, words_of
from corral.agent.shim import filesystem_view
from corral.agent.shim.event_loop import Loop

LOOK_SECONDS: Final = 0.05  # between looks at what is left, while it may end by itself
KILL_SECONDS: Final = 0.01  # between rounds of SIGKILL, at first
SLOWEST_KILL_SECONDS: Final = 0.2
HANG_UP_SECONDS: Final = 1.0  # between two SIGHUP to a shell that is still there
SHELL: Final = "/bin/bash" if os.access("/bin/bash", os.X_OK) else "/bin/sh"
_SHELLS: Final = (
    SHELL.encode(),
    filesystem_view.SHELL.encode(),
)  # a node's own, and that of images


def is_of_command(pid: int) -> bool:
    """Return whether the process is a shell that runs a command, as `sh -c COMMAND`."""
    arguments = words_of(pid)[:2]
    return arguments[1:] == [b"-c"] and arguments[0] in _SHELLS


class Grace:
    """The grace period of an attempt that is being stopped: when to send which signal.
    `look` is called again whenever there is something to do or to check."""

    def __init__(
        self, loop: Loop, group: Containment, look: Callable[[], None]
    ) -> None:
        self._loop = loop
        self._group = group
        self._look = look
        self._deadline: float | None = None  # what is left then is killed
        self._first: frozenset[int] | None = None  # what ran when the grace began
        self._told: set[int] = set()
        self._told_at: dict[int, float] = {}
        self._has_told = False
        # processes that the signalled ones have started since
        self._spared: set[int] = set()
        self._childless: set[int] = set()
        self._kill_seconds = KILL_SECONDS
        self._looks = False

    @property
    def runs(self) -> bool:
        return self._deadline is not None

    def begin(self, seconds: float) -> None:
        """Begin the grace period. If it runs already, a shorter one cuts it short, and
        a longer one changes nothing."""
        deadline = self._loop.now() + max(0.0, seconds)
        if self._deadline is None or deadline < self._deadline:
            self._deadline = deadline
            self._loop.later(max(0.0, seconds), self._look)

    def tell_again(self, pid: int) -> None:
        """Let the process receive SIGTERM again: the first SIGTERM may have arrived
        before the program could handle it."""
        self._told.discard(pid)

    def act(
        self, left: Collection[int], shells: Collection[int], attached: Collection[int]
    ) -> None:
        """Send the signals that are due. Before the deadline these are SIGTERM or
        SIGHUP to processes in `left`, which are still alive; after it, kill all.
        `shells` run the ranks' commands; `attached` are the shells of attached users.
        """
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
        if self._first is None:
            self._first = frozenset(left)
        self._told.intersection_update(left)
        self._hang_up_again(attached)
        self._spared.intersection_update(left)
        known_pids = self._told | self._spared
        commands = [pid for pid in left if pid in shells and pid not in known_pids]
        waiting_pids = {pid for pid in commands if self._waits(pid)}
        # before what they began since
        for pid in sorted(left, key=lambda pid: pid not in shells):
            if pid in known_pids or pid in waiting_pids:
                continue
            parent = parent_of(pid)
            if parent in known_pids:
                self._spared.add(pid)
            elif parent not in waiting_pids or pid in self._first:
                send(pid, signal.SIGHUP if pid in attached else signal.SIGTERM)
                self._told_at[pid] = self._loop.now()
                self._told.add(pid)
                self._has_told = True

    def _hang_up_again(self, attached: Collection[int]) -> None:
        """Let attached shells that outlive a SIGHUP get another SIGHUP. Bash can
        receive the signal just before it reads the next command, and then ends only
        after that command."""
        now = self._loop.now()
        for pid in attached:
            if pid in self._told and now - self._told_at[pid] >= HANG_UP_SECONDS:
                self._told.discard(pid)

    def _waits(self, shell: int) -> bool:
        """Return whether to delay SIGTERM for this shell until its command has ended.

        Otherwise the shell would end before its command, and the exit code would be
        lost. A shell that traps SIGTERM waits by itself.
        """
        if not is_of_command(shell) or catches(shell, signal.SIGTERM):
            return False
        if any(child in (self._first or ()) for child in children(shell)):
            self._childless.discard(shell)
            return True
        return self._may_be_ending(shell)

    def _may_be_ending(self, shell: int) -> bool:
        """Return whether the shell's command has just ended. Such a shell has until the
        next check to end with its own exit code."""
        is_newly_childless = shell not in self._childless and self._has_told
        self._childless.add(shell)
        return is_newly_childless
