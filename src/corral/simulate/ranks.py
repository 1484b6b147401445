"""Simulated shims and ranks. They survive the agent's end, and end only when their node
loses power."""

from __future__ import annotations

from collections.abc import Callable

from corral.domain.attempt import Exit, Save
from corral.domain.desired_state import Launch, Stop, TimeWarning
from corral.domain.ids import NodeId
from corral.domain.observed_state import AttemptKey, Progress
from corral.simulate.disk import SELF_STOP, SimulatedJournal
from corral.simulate.evidence import TrueHang
from corral.simulate.hang_behaviour import (
    LASTS_SECONDS,
    LOOK_SECONDS,
    HangBehaviour,
    report_of,
)
from corral.simulate.machine import SimulatedMachine
from corral.simulate.world import Stage

EXIT_STOPPED = 75
TERM, KILL = 15, 9
LOST = Exit(signal=KILL)  # with the power

Start = Callable[[Launch, NodeId, set[int]], None]  # ranks come to life there


class NodeAttempt:
    """One simulated attempt on one node: its shim and its ranks."""

    def __init__(
        self,
        stage: Stage,
        machine: SimulatedMachine,
        launch: Launch,
        journal: SimulatedJournal,
        gang: SimulatedGang,
    ) -> None:
        self._stage = stage
        self.machine = machine
        self.launch = launch
        self.journal = journal
        self.gang = gang
        self.shim_lives = True
        self.kill_at = float("inf")
        self.warned = False
        self.ranks: set[int] = set()

    def start(self) -> None:
        first_rank = self.launch.first_rank
        self.ranks = set(range(first_rank, first_rank + self.launch.ranks))
        self.journal.started_at = self.machine.wall()
        self.gang.start(self.launch, self.machine.id, set(self.ranks))
        self.journal.up = True
        self.machine.changed()
        self._stage.evidence.first_up.setdefault(self.launch.key, self._stage.now())
        self.gang.joined(self)
        if self.journal.stopping is not None:
            self._term(self.journal.stopping)

    def stop(self, stop: Stop) -> None:
        """Send SIGTERM at the first stop order; a later order can only bring the
        SIGKILL forward."""
        self.kill_at = min(self.kill_at, self._stage.now() + stop.grace_seconds)
        self.machine.hardware.after(stop.grace_seconds, self._kill_if_due)
        if self.journal.stopping is None:
            self.journal.stopping = stop
            if stop.why == SELF_STOP:
                hurt = self._stage.evidence.hurt[self.launch.key]
                hurt.append(f"{self.machine.id} stopped it itself")
            self._term(stop)
            self.machine.changed()

    def warn(self, notice: TimeWarning) -> None:
        """Warn the ranks of the time limit. Only the first warning counts. If the ranks
        make saves at all, they save and continue."""
        if self.warned or self.journal.stopping is not None:
            return
        self.warned = True
        self._stage.evidence.warned.add((notice.key, self.machine.id))
        if (
            notice.save
            and self.gang.life.save_every
            and self.gang.step > self.gang.first_step
        ):
            self.machine.hardware.after(
                self.gang.life.save_seconds, self.save, self.gang.step
            )

    def _term(self, stop: Stop) -> None:
        life = self.gang.life
        if not life.ignores_term:
            for rank in sorted(self.ranks):
                self.machine.hardware.after(
                    life.stop_seconds, self._stopped, rank, stop.save
                )

    def _stopped(self, rank: int, save: bool) -> None:
        if rank not in self.ranks:
            return
        saves = save and self.gang.life.save_every > 0
        if saves and rank == 0:
            self.save(self.gang.step)
        self.end(
            rank, Exit(code=EXIT_STOPPED) if saves else Exit(signal=TERM), own=False
        )

    def _kill_if_due(self) -> None:
        if self._stage.now() >= self.kill_at - 1e-6:
            self.kill()

    def kill(self) -> None:
        for rank in sorted(self.ranks):
            self.end(rank, Exit(signal=KILL), own=False)

    def end(self, rank: int, end: Exit, *, own: bool) -> None:
        if rank not in self.ranks:
            return
        self.ranks.discard(rank)
        end = Exit(code=end.code, signal=end.signal, at=self.machine.wall())
        key, node = self.launch.key, self.machine.id
        self._stage.evidence.rank_ends(key, node, rank, end, own=own)
        self._stage.tell(
            f"{node}: {_format_attempt_key(key)} rank {rank} ends {end.shell_code}"
        )
        if self.shim_lives:
            self.journal.exits[rank] = end
            self.machine.changed()
        self.gang.lost_rank(self, end)

    def save(self, step: int) -> None:
        """Write a checkpoint, complete and durable, in this attempt's own directory."""
        if 0 not in self.ranks or step in self._stage.evidence.made[self.launch.key]:
            return
        key = self.launch.key
        new_save = Save(
            job=key[0],
            attempt=key[1],
            step=step,
            path=f"/shared/{_format_attempt_key(key)}/{step}",
            manifest_sha256=f"{key[0]}.{key[1]}.{step}",
            size_bytes=1000,
            seconds=self.gang.life.save_seconds,
            stall_seconds=0.0,
            at=self.machine.wall(),
        )
        self._stage.evidence.made[key][step] = new_save
        if step in self.gang.life.corrupt_saves:
            self._stage.evidence.broken.add((key, step))
        if self.shim_lives:
            self.journal.saves[key[1], step] = new_save
            self.machine.changed()

    def power_lost(self) -> None:
        key, node = self.launch.key, self.machine.id
        for rank in sorted(self.ranks):
            self._stage.evidence.rank_ends(key, node, rank, LOST, own=False)
        self.ranks.clear()
        self.gang.broken_by(self)

    def shim_dies(self) -> None:
        """End the shim; its ranks continue unwatched until an agent finds and ends
        them."""
        self.shim_lives = False
        hurt = self._stage.evidence.hurt[self.launch.key]
        hurt.append(f"its shim on {self.machine.id} died")


class SimulatedGang:
    """A simulated synchronous training loop: it advances only while all of its ranks
    run."""

    def __init__(self, stage: Stage, launch: Launch, start: Start) -> None:
        self._stage = stage
        self.start = start
        self.key: AttemptKey = launch.key
        self.nodes = len(launch.nodes)
        self.resume = launch.resume
        self.life = stage.lives[launch.job_name]
        watched = launch.hang is not None
        self.hang_behaviour = stage.hangs.get(launch.job_name) if watched else None
        self.parts: list[NodeAttempt] = []
        self.broken = False
        self.first_step = self.step = 0

    def joined(self, part: NodeAttempt) -> None:
        if part.launch.resume != self.resume:
            self._stage.breach(
                "I12",
                f"{_format_attempt_key(self.key)}: its nodes resume from different saves",
            )
        self.parts.append(part)
        if len(self.parts) == self.nodes:
            self.first_step = self.step = self._find_resume_step()
            self._stage.evidence.up_since[self.key] = self._stage.now()
            self._stage.loop.later(self.life.step_seconds, self._run_next_step)

    def _find_resume_step(self) -> int:
        """Return the step from which to continue: that of the first save that can be
        verified. A broken save is reported."""
        lead = next(
            node_attempt
            for node_attempt in self.parts
            if node_attempt.launch.node_rank == 0
        )
        for save in self.resume:
            save_key = ((save.job, save.attempt), save.step)
            if save_key not in self._stage.evidence.broken:
                return save.step
            quarantined_save = _quarantined(save)
            lead.journal.saves[save.attempt, save.step] = quarantined_save
            lead.machine.changed()
        return 0

    def _run_next_step(self) -> None:
        is_complete = all(
            len(node_attempt.ranks) == node_attempt.launch.ranks
            for node_attempt in self.parts
        )
        if self.broken or not is_complete:
            return
        if not any(
            gang_member.machine.hardware.paused or gang_member.journal.stopping
            for gang_member in self.parts
        ):
            self._step()
        if self.hang_behaviour is not None and self._hangs_now():
            self._hang(self.hang_behaviour)
        elif not self.broken:
            self._stage.loop.later(self.life.step_seconds, self._run_next_step)

    def _step(self) -> None:
        life = self.life
        self.step += 1
        for node_attempt in self.parts if life.reports_steps else ():
            progress = Progress(
                step=self.step,
                first_step=self.first_step,
                until=life.steps,
                at=node_attempt.machine.wall(),
            )
            node_attempt.journal.progress = progress
        lead = next(
            gang_member
            for gang_member in self.parts
            if gang_member.launch.node_rank == 0
        )
        if life.save_every and self.step % life.save_every == 0:
            lead.machine.hardware.after(life.save_seconds, lead.save, self.step)
        if self._fails_now():
            node_attempt = self.parts[self._stage.chance.randrange(len(self.parts))]
            node_attempt.end(min(node_attempt.ranks), life.failure, own=True)
        elif self.step >= life.steps:
            self._finish_training()

    def _fails_now(self) -> bool:
        failed = self._stage.failed[self.key[0]]
        life = self.life
        due = self.step - self.first_step >= min(life.fails_after_steps, life.steps - 1)
        if failed >= life.failures or not due:
            return False
        self._stage.failed[self.key[0]] += 1
        return True

    def _hangs_now(self) -> bool:
        """Return whether the gang hangs after the step that it has made. An attempt
        hangs once."""
        behaviour = self.hang_behaviour
        if behaviour is None:
            return False
        return (
            not self.broken
            and self.key not in self._stage.evidence.hangs
            and self._stage.hung[self.key[0]] < behaviour.hangs
            and self.step - self.first_step == behaviour.after_steps
        )

    def _hang(self, behaviour: HangBehaviour) -> None:
        """Let one rank stand still, for which the others wait. Each node reports that
        after its bound and two looks."""
        stage = self._stage
        stage.hung[self.key[0]] += 1
        stuck_part = self.parts[stage.chance.randrange(len(self.parts))]
        hang = TrueHang(
            began_at=stage.now(),
            step=self.step,
            rank=min(stuck_part.ranks),
            node=stuck_part.machine.id,
            is_machines=behaviour.is_machines,
        )
        stage.evidence.hangs[self.key].append(hang)
        stage.tell(f"{_format_attempt_key(self.key)} hangs: {hang}")
        for part in self.parts:
            part.machine.hardware.after(
                behaviour.bound_seconds + LOOK_SECONDS, self._report_hang, part, hang
            )
        if behaviour.ends_by_itself:
            stage.loop.later(LASTS_SECONDS, self._end_hang, hang)

    def _report_hang(self, part: NodeAttempt, hang: TrueHang) -> None:
        assert self.hang_behaviour is not None
        if hang.ended_at is None and part.ranks:
            seconds = self._stage.now() - hang.began_at
            part.journal.hang = report_of(
                part.ranks, hang.rank, hang.step, self.hang_behaviour, seconds
            )
            part.machine.changed()

    def _end_hang(self, hang: TrueHang) -> None:
        hang.ended_at = self._stage.now()
        for part in self.parts:
            part.journal.hang = None
        self._run_next_step()

    def _finish_training(self) -> None:
        self.broken = True  # no further step
        for node_attempt in self.parts:
            for rank in sorted(node_attempt.ranks):
                seconds = self._stage.chance.uniform(0.0, 0.3)
                node_attempt.machine.hardware.after(
                    seconds, _clean_end, node_attempt, rank
                )

    def lost_rank(self, part: NodeAttempt, end: Exit) -> None:
        if not end.clean:
            self.broken_by(part)

    def broken_by(self, part: NodeAttempt) -> None:
        """Break the gang, because its attempt on one node (`part`) has ended. The other
        ranks then hang in their collective, or fail after a while."""
        if self.broken and self.step >= self.life.steps:
            return
        is_first_failure = not self.broken
        self.broken = True
        if not is_first_failure or self.life.hangs_without_peers:
            return
        for peer_attempt in self.parts:
            for rank in sorted(peer_attempt.ranks):
                seconds = self._stage.chance.uniform(0.05, 5.0)
                peer_attempt.machine.hardware.after(
                    seconds, _fail_without_peer, peer_attempt, rank
                )


class Gangs:
    """The simulated training loop of each attempt. It is created when the first node of
    the attempt requests it. `start`: see Start."""

    def __init__(self, stage: Stage, start: Start) -> None:
        self._stage = stage
        self._start = start
        self._gangs: dict[AttemptKey, SimulatedGang] = {}

    def of(self, launch: Launch) -> SimulatedGang:
        if launch.key not in self._gangs:
            self._gangs[launch.key] = SimulatedGang(self._stage, launch, self._start)
        return self._gangs[launch.key]


def _clean_end(part: NodeAttempt, rank: int) -> None:
    part.end(rank, Exit(code=0), own=True)


def _fail_without_peer(part: NodeAttempt, rank: int) -> None:
    part.end(rank, Exit(code=1), own=False)


def _quarantined(save: Save) -> Save:
    return Save(
        job=save.job,
        attempt=save.attempt,
        step=save.step,
        path=save.path,
        manifest_sha256=save.manifest_sha256,
        size_bytes=save.size_bytes,
        seconds=save.seconds,
        stall_seconds=save.stall_seconds,
        at=save.at,
        quarantined="a shard does not verify",
    )


def _format_attempt_key(key: AttemptKey) -> str:
    return f"{key[0]}.{key[1]}"
