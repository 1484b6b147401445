"""Simulated attempts on one machine: they are started, refused, found without a shim,
or removed when they are over."""

from corral.domain.desired_state import Launch
from corral.domain.observed_state import AttemptKey
from corral.simulate.disk import SimulatedJournal
from corral.simulate.machine import SimulatedMachine
from corral.simulate.ranks import Gangs, NodeAttempt
from corral.simulate.world import Stage


class Shims:
    """The shim processes that a simulated agent has started; they survive the agent.
    `parts` are the attempts on this machine that are not over yet."""

    def __init__(self, stage: Stage, machine: SimulatedMachine, gangs: Gangs) -> None:
        self._stage = stage
        self._machine = machine
        self._gangs = gangs
        self.parts: dict[AttemptKey, NodeAttempt] = {}
        self.launches_fail = False

    def launch(self, launch: Launch) -> None:
        """Start the ranks of the launch. Its record on the disk survives the agent, and
        the ranks are up a moment later."""
        machine, life = self._machine, self._stage.lives[launch.job_name]
        is_first_launch = launch.key not in machine.disk.journals
        assert is_first_launch, f"{launch.key} is on {machine.id} already"
        if self.launches_fail or (life.refused_once and launch.key[1] == 1):
            self._stage.evidence.hurt[launch.key].append(
                f"{machine.id} could not start it"
            )
            self.refuse(launch.key, "the node cannot start it now", infra=True)
            return
        journal = SimulatedJournal(key=launch.key, boot=machine.boot, launch=launch)
        machine.disk.journals[launch.key] = journal
        node_attempt = NodeAttempt(
            self._stage, machine, launch, journal, self._gangs.of(launch)
        )
        self.parts[launch.key] = node_attempt
        machine.hardware.after(0.01, node_attempt.start)

    def refuse(self, key: AttemptKey, why: str, *, infra: bool) -> None:
        self._machine.disk.journals[key] = SimulatedJournal(
            key=key, boot=self._machine.boot, refused=why, refused_is_infra=infra
        )
        self._machine.changed()

    def find_lost(self) -> None:
        """End the attempts whose shim has died, as the real agent does, and record this
        in their journals."""
        for key, node_attempt in list(self.parts.items()):
            if not node_attempt.shim_lives:
                node_attempt.kill()
                del self.parts[key]
                node_attempt.journal.lost = "its shim died"
                self._machine.changed()

    def settle(self, key: AttemptKey) -> None:
        journal = self._machine.disk.journals.get(key)
        if journal is not None and journal.is_over(self._machine.boot):
            del self._machine.disk.journals[key]
            self.parts.pop(key, None)

    def power_lost(self) -> None:
        node_attempts, self.parts = self.parts, {}
        for node_attempt in node_attempts.values():
            node_attempt.power_lost()
