"""Selection of the processes of an attempt that receive a user-requested signal.

As with Slurm, a process without a handler receives the signal too: the user has asked
for it. One exception is the shell that runs a rank's command: it gets no signal while
it waits for its children, as Slurm leaves a batch script alone, because the shell would
end, and the rank with it. Neither do the shells of attached users, nor the programs
that run a batch script and its steps (0031).
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Final

from corral.agent.processes import (
    catches,
    children,
    parent_of,
    send,
    session_of,
    words_of,
)
from corral.agent.shim.connection import Message
from corral.agent.shim.rank_process import Rank
from corral.agent.shim.termination import is_of_command
from corral.wire.slurm.batch_plan import MODULE as BATCH

SRUN: Final = "corral.cli.slurm"


def signal(
    message: Message,
    pids: Iterable[int],
    ranks: Sequence[Rank],
    people: Collection[int],
) -> None:
    """Send the signal that the message names to the processes that it is meant for.
    `pids`: all running processes of the attempt; `people`: the shells of attached
    users."""
    number = int(message["number"])
    shells = {rank.pid for rank in ranks if rank.pid and not rank.is_over}
    for pid in meant(pids, shells, people, number, str(message["to"])):
        send(pid, number)


def meant(
    pids: Iterable[int],
    shells: Collection[int],
    people: Collection[int],
    number: int,
    to: str,
) -> list[int]:
    """Return the members of `pids` that get the signal. `shells`: the processes as
    which the ranks were started. `people`: the shells of attached users. `to`: the
    user's choice of processes, such as "batch" or "all"."""
    sessions = {pid: session_of(pid) for pid in pids}
    rank_pids = [pid for pid, session in sessions.items() if session not in people]
    batches = {shell for shell in shells if _is_running_module(shell, BATCH)}
    scripts = {
        pid
        for pid in rank_pids
        if parent_of(pid) in batches and sessions[pid] in batches
    }
    batch_pids = scripts | (set(shells) - batches)
    if to == "batch":
        return [pid for pid in rank_pids if pid in batch_pids]
    if to == "all":
        return [
            pid
            for pid in rank_pids
            if pid not in batches and not _is_running_module(pid, SRUN)
        ]
    steps = [pid for pid in rank_pids if sessions[pid] not in batches]
    return [
        pid for pid in steps if pid not in shells or not _is_waiting_shell(pid, number)
    ]


def _is_running_module(pid: int, module: str) -> bool:
    """Return whether the process is a program of Corral's own that runs this module:
    `python -P -m MODULE`."""
    return words_of(pid)[1:4] == [b"-P", b"-m", module.encode()]


def _is_waiting_shell(shell: int, number: int) -> bool:
    """Return whether the process is a command's shell that does not catch the signal
    and waits for its children."""
    if not is_of_command(shell) or catches(shell, number):
        return False
    return bool(children(shell))
