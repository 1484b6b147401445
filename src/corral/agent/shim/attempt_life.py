"""The life of one attempt on a node: setup, start of the ranks, their ends, and cleanup
of all processes that they leave."""

import os
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from corral.agent import containment
from corral.agent.clocks import since_boot, wall
from corral.agent.job_account import JobAccount
from corral.agent.journal import Journal
from corral.agent.output_capture import RankLog
from corral.agent.processes import catches, send
from corral.agent.shim import attach, signal_targets
from corral.agent.shim.attempt_record import AttemptRecord, reserve_bytes
from corral.agent.shim.connection import Message, ShimConnection
from corral.agent.shim.connections import ShimConnections
from corral.agent.shim.dropped_messages import Drops
from corral.agent.shim.event_loop import Loop
from corral.agent.shim.exit_record import Exits
from corral.agent.shim.filesystem_view import Inside
from corral.agent.shim.rank_environment import rank_environment
from corral.agent.shim.rank_process import Rank, tell_end
from corral.agent.shim.spawn import Child, Spawned, spawn
from corral.agent.shim.state import Record, ShimState, save_record
from corral.agent.shim.termination import SHELL, Grace
from corral.agent.shim.warm_imports import keep_imports
from corral.agent.watching.hook_file import lay_out_hook
from corral.agent.watching.rank_reports import report_record
from corral.domain import bounds
from corral.domain.culprits import OWN_PROGRAM
from corral.domain.trouble_kind import TroubleKind
from corral.wire.shim_spec import ShimSpec

# for what remains when a rank has failed, or all have ended
PEER_GRACE_SECONDS: Final = 1.0
GATHER_SECONDS: Final = 0.05  # progress that comes together travels together
LONGEST_GRACE: Final = 1e9  # seconds
WINDOW: Final = ("rows", "columns")  # of a terminal
MOST_CELLS: Final = 1_000  # in either direction


class AttemptLife:
    """One attempt on this node. It is created once the journal and the containment
    exist, and is over when `loop` has stopped."""

    def __init__(
        self,
        spec: ShimSpec,
        loop: Loop,
        journal: Journal,
        group: containment.Containment,
        logs: dict[int, RankLog],
        account: JobAccount | None,
        inside: Inside,
    ) -> None:
        self.spec = spec
        self._inside = inside
        self.spawn_rank: Callable[[Child], Spawned] = spawn
        self.account = account
        self._loop = loop
        self._group = group
        self._logs = logs
        self._ledger = AttemptRecord(
            loop, journal, reserve_bytes(len(spec.ranks)), self._written, self._warn
        )
        self._grace = Grace(loop, group, self._look)
        self._hook_folder: str | None = None  # of the file that counts steps
        self._setup: Rank | None = None
        self._ranks: list[Rank] = []
        self._shells: dict[int, socket.socket] = {}  # who hears of the end of each
        self._stop: Message | None = None
        self._warned = False
        self._gathers = False
        self._finishing = False
        self._exits = Exits(group, logs, spec.run)
        self._drops = Drops(loop, self._say_dropped)
        self._lines = ShimConnections(loop, self._heard, self._drops.note)
        self._trouble = ""
        self._infra = True
        self._trouble_of = ""
        self._trouble_kind = TroubleKind.NONE

    @property
    def state(self) -> ShimState:
        return self._ledger.state

    @property
    def containment_kind(self) -> str:
        return self._group.kind

    # --- starting

    def begin(self) -> None:
        for warning in self._group.warnings:
            self._first_log.say(warning)
        if self.spec.watch:
            self._hook_folder = lay_out_hook(self.spec.folder)
        if self.spec.setup is None:
            self._start_ranks()
            return
        self._setup = Rank(self._loop, self.spec.ranks[0], self._first_log)
        self._start(self._setup, self.spec.setup, {})
        self._look()

    def _start_ranks(self) -> None:
        for number, rank_variables in zip(
            self.spec.ranks, self.spec.rank_env, strict=True
        ):
            rank = Rank(self._loop, number, self._logs[number], self._input_changed)
            self._ranks.append(rank)
            if not self._start(rank, self.spec.run, rank_variables):
                break
        self._look()

    def _start(self, rank: Rank, command: str, own_env: dict[str, str]) -> bool:
        shell_command = [self._inside.shell(SHELL), "-c", command]
        try:
            rank.start(
                self._child_on(shell_command, own_env),
                lambda: self._on_rank_start(rank),
                spawn if rank is self._setup else self.spawn_rank,
            )
        except OSError as trouble:
            rank.status = 0
            rank.exec_failed = str(trouble)
            self._on_rank_start(rank)
            return False
        return True

    def _child_on(
        self, words: list[str], own_env: dict[str, str], *, terminal: bool = False
    ) -> Callable[[tuple[int, int, int]], Child]:
        env = rank_environment(
            self.spec,
            own_env,
            hook_folder=self._hook_folder,
            account=self.account,
            inside=self._inside,
        )

        def child(stdio: tuple[int, int, int]) -> Child:
            return Child(
                words=self._inside.words(words),
                env=env,
                work=self.spec.work,
                stdio=stdio,
                account=self.account,
                containment=self._group,
                inside=self._inside,
                terminal=terminal,
            )

        return child

    def _on_rank_start(self, rank: Rank) -> None:
        """Handle the result of starting a process (a rank or the setup): its program
        runs, or failed to start."""
        if rank.exec_failed:
            program_name = "setup" if rank is self._setup else f"rank {rank.number}"
            self._fail_attempt(
                f"{program_name} could not be started: {rank.exec_failed}",
                infra=not self._inside.is_image,
            )
        elif self._grace.runs:
            self._grace.tell_again(rank.pid)
        started = len(self._ranks) == len(self.spec.ranks)
        if (
            started
            and all(rank.runs for rank in self._ranks)
            and self.state.started_at is None
        ):
            self._ledger.record(
                {"type": "started", "at": wall(), "since_boot": since_boot()}
            )

    def _input_changed(self) -> None:
        """Publish which rank waits for input, after a rank has begun or ceased to wait.
        If several wait, it is the lowest rank."""
        waiting_ranks = (rank.number for rank in self._ranks if rank.waits_for_input)
        self.state.waits_for_input = min(waiting_ranks, default=None)
        self._schedule_publish()

    # --- ends

    def reap(self) -> None:
        """Reap the child processes that have ended: ranks, attached shells, and orphans
        that the shim has adopted."""
        ended_ranks: list[Rank] = []
        with suppress(ChildProcessError):
            while (child := os.waitpid(-1, os.WNOHANG))[0]:
                if child[0] in self._shells:
                    tell_end(self._shells.pop(child[0]), child[1])
                for rank in self._started_ranks:
                    if rank.pid == child[0] and not rank.is_over:
                        rank.end(child[1])
                        ended_ranks.append(rank)
        self._take_ends(ended_ranks)
        self._look()

    @property
    def _started_ranks(self) -> list[Rank]:
        return [*self._ranks, *([self._setup] if self._setup else [])]

    def _take_ends(self, ended: list[Rank]) -> None:
        """Write down the ends of several ranks together, with the attempt's own end if
        nothing is left of it."""
        ranks = [
            rank for rank in ended if rank is not self._setup and not rank.exec_failed
        ]
        stops = self._grace.runs
        records = [
            self._with_trouble(self._exits.record(rank, stops=stops)) for rank in ranks
        ]
        if records and self._is_empty():
            self._finish_attempt(records)
            return
        if records:
            self._ledger.record(*records)
        failed = next(
            (record["rank"] for record in records if record["code"] != 0), None
        )
        if failed is not None and not self._grace.runs:
            self._stop_attempt(
                PEER_GRACE_SECONDS, f"rank {failed} has failed", save=False
            )
        if self._setup in ended and not self._setup.exec_failed:
            self._take_setup(self._setup)

    def _is_empty(self) -> bool:
        """Return whether all ranks were started and have ended, and none of their
        processes is left."""
        started = len(self._ranks) == len(self.spec.ranks)
        return (
            started
            and all(rank.is_over for rank in self._ranks)
            and not self._group.pids()
        )

    def _take_setup(self, setup: Rank) -> None:
        record = self._exits.record(setup, stops=self._grace.runs)
        if self._grace.runs:
            return
        if record["code"] == 0:
            setup.close()  # what it left in the background goes on
            self._start_ranks()
            return
        code, number = record["code"], record["signal"]
        exit_text = f"exit code {code}" if code is not None else f"signal {number}"
        self._logs[setup.number].say(
            f"setup has failed with {exit_text}: the command is not run"
        )
        self._trouble, self._infra = f"setup has failed with {exit_text}", False
        self._trouble_kind = TroubleKind.SETUP
        self._ledger.record(self._with_trouble(record))
        self._stop_attempt(PEER_GRACE_SECONDS, self._trouble, save=False)

    def _with_trouble(self, record: Record) -> Record:
        """Return the record of a rank's end, with the reason of the attempt's failure
        added if there is one.

        Both are reported together, so that the exit code is not mistaken for the full
        result.
        """
        if not self._trouble or self.state.trouble:
            return record
        return {
            **record,
            "trouble": self._trouble,
            "infra": self._infra,
            "trouble_of": self._trouble_of,
            "trouble_kind": self._trouble_kind.value,
        }

    def _fail_attempt(self, trouble: str, *, infra: bool, by: str = "") -> None:
        """Record this failure as the attempt's, and stop the attempt. `by`: who reports
        the failure if it is not Corral itself. `infra`: whether the infrastructure is
        at fault."""
        if not self._trouble:
            self._trouble, self._infra, self._trouble_of = trouble, infra, by
        self._stop_attempt(PEER_GRACE_SECONDS, trouble, save=False)

    def _stop_attempt(self, grace_seconds: float, why: str, *, save: bool) -> None:
        """Stop all processes of the attempt within the grace period. A shorter grace
        period cuts a running one short."""
        is_first_stop = not self._grace.runs
        self._grace.begin(grace_seconds)
        # send SIGTERM first, so that a rank that exits on the message has received it
        self._written()
        if is_first_stop:
            self._stop = {
                "type": "stop",
                "save": save,
                "grace_seconds": grace_seconds,
                "why": why,
            }
            self._lines.tell_ranks(self._stop)

    def _look(self) -> None:
        """Check which processes are left, and take the step that is due: finish the
        attempt, or stop the processes that outlive the ranks."""
        started = self._started_ranks
        has_all_ended = all(rank.is_over for rank in started)
        if self._finishing or (not has_all_ended and not self._grace.runs):
            return
        live_pids = self._group.pids()
        if has_all_ended and not live_pids:
            self._finish_attempt()
        elif not self._grace.runs:
            self._stop_attempt(PEER_GRACE_SECONDS, "all ranks have ended", save=False)
        else:
            self._grace.act(live_pids, {rank.pid for rank in started}, self._shells)

    def _finish_attempt(self, exits: Sequence[Record] = ()) -> None:
        """Finish the attempt. `exits`: records of ended ranks that are not in the
        journal yet."""
        if not self._ledger.only_saves_wait:
            if exits:
                self._ledger.record(*exits)
            return
        self._finishing = True
        for rank in self._ranks:
            rank.close()
        for log in self._logs.values():
            log.close()
        self._group.remove()
        self._ledger.end(
            *exits,
            {
                "type": "ended",
                "at": wall(),
                "trouble": self._trouble,
                "infra": self._infra,
                "trouble_of": self._trouble_of,
                "trouble_kind": self._trouble_kind.value,
                "progress": self.state.progress,
            },
        )

    # --- who hears of it

    def _written(self) -> None:
        """Publish the state after records were written to the journal. If the attempt
        has ended, stop the loop; otherwise check which processes are left."""
        if self._grace.runs and self.state.phase in ("starting", "up"):
            self.state.phase = "stopping"
        self._publish_state()
        if self.state.phase == "ended":
            self._loop.stop()
        else:
            self._look()

    def _warn(self, sentence: str) -> None:
        os.write(2, f"{self.spec.job}.{self.spec.attempt}: {sentence}\n".encode())
        self._lines.tell_agents({"type": "warning", "text": sentence})

    def _publish_state(self) -> None:
        self.state.dropped = self._drops.count
        self._lines.renew(self.state.message)

    def connect(self, connection: socket.socket, *, watches: bool = False) -> None:
        line = self._lines.connect(connection)
        if watches and line is not None:
            self._watched(line)

    def read_programs(self) -> None:
        self._lines.read_programs()

    def _watched(self, line: ShimConnection) -> None:
        line.watches = True
        line.renew(self.state.message)

    def _heard(self, line: ShimConnection, message: Message) -> None:
        kind = message["type"]
        if kind == "watch":
            self._watched(line)
        elif kind == "hello":
            line.is_rank = True
            if self._stop is not None:
                line.send(self._stop)
        elif kind == "progress":
            self.state.take_progress(message, wall(), self.spec.ranks)
            self._schedule_publish()
        elif kind == "steps":
            self.state.take_steps(message, wall(), self.spec.ranks)
            self._schedule_publish()
        elif kind == "phase":
            self.state.take_phase(message, self.spec.ranks)
            self._schedule_publish()
        elif kind == "imports":
            keep_imports(self.spec.folder, message["names"])
        elif kind == "stalled":
            self._lines.tell_agents(report_record(message))
        elif kind == "save":
            self._ledger.save(save_record(message, self.spec.attempt, wall()))
        elif kind == "refuse":
            infra = message.get("infra") is True
            reason = bounds.cut(str(message["why"]), bounds.SENTENCE_LETTERS)
            self._fail_attempt(reason, infra=infra, by=OWN_PROGRAM)
        elif kind == "committed":
            self._committed(message)
        elif kind == "stop":
            grace_seconds = bounds.number(
                "grace_seconds", message["grace_seconds"], most=LONGEST_GRACE
            )
            reason = bounds.cut(str(message["why"]), bounds.SENTENCE_LETTERS)
            self._stop_attempt(grace_seconds, reason, save=bool(message["save"]))
        elif kind == "warn":
            self._warn_ranks(message)
        elif kind == "signal":
            signal_targets.signal(
                message, self._group.pids(), self._ranks, self._shells
            )
        elif kind == "attach":
            self._attach_client(line, message)

    def _warn_ranks(self, message: Message) -> None:
        """Warn the ranks, once: send the signal of the message to the processes that
        catch it, because it would end all others, and ask the ranks for a save if the
        message says so."""
        if self._warned or self._grace.runs:
            return
        self._warned = True
        if (number := message["signal"]) is not None:
            for pid in self._group.pids():
                if catches(pid, int(number)):
                    send(pid, int(number))
        if message["save"]:
            self._lines.tell_ranks({"type": "save"})

    def _say_dropped(self, sentence: str) -> None:
        self._first_log.say(sentence)
        self._schedule_publish()

    def _schedule_publish(self) -> None:
        if not self._gathers:
            self._gathers = True
            self._loop.later(GATHER_SECONDS, self._run_scheduled_publish)

    def _run_scheduled_publish(self) -> None:
        self._gathers = False
        self._publish_state()

    def _committed(self, message: Message) -> None:
        steps = [bounds.integer("step", step) for step in message["steps"]]
        self.state.acknowledge(self.spec.attempt, steps)
        pinned = [
            [bounds.integer("attempt", attempt), bounds.integer("step", step)]
            for attempt, step in message.get("pinned") or ()
        ]
        order = {"type": "committed", "steps": steps}
        self._lines.tell_ranks(order | ({"pinned": pinned} if pinned else {}))
        self._publish_state()

    def _attach_client(self, line: ShimConnection, message: Message) -> None:
        connection = line.take_over()
        number = int(message["rank"])
        rank_index = next(
            (index for index, rank in enumerate(self._ranks) if rank.number == number),
            None,
        )
        if rank_index is None or self._grace.runs:
            attach.refuse(
                connection, f"rank {number} does not run on node {self.spec.node}"
            )
        elif message["shell"]:
            self._open_shell(connection, self.spec.rank_env[rank_index], message)
        else:
            attach.listen(self._ranks[rank_index], connection)

    def _open_shell(
        self, connection: socket.socket, own_env: dict[str, str], message: Message
    ) -> None:
        shell = self.account.shell if self.account else os.environ.get("SHELL", SHELL)
        shell_command = [
            self._inside.shell(shell if os.access(shell, os.X_OK) else SHELL),
            "-i",
        ]
        if command := message.get("command"):
            shell_command = [self._inside.shell(SHELL), "-c", str(command)]
        env = {**own_env, "TERM": str(message.get("term") or "xterm-256color")}
        child = self._child_on(shell_command, env, terminal=True)
        try:
            rows, columns = (
                min(max(1, int(message[dimension])), MOST_CELLS) for dimension in WINDOW
            )
            self._shells[attach.open_shell(child, connection, rows, columns)] = (
                connection
            )
        except OSError as trouble:
            self._warn(f"no shell could be opened: {trouble}")

    @property
    def _first_log(self) -> RankLog:
        return self._logs[self.spec.ranks[0]]
