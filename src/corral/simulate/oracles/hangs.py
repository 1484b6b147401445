"""Checks of the recorded hangs, compared with what the ranks really did."""

from corral.domain.attempt import Attempt
from corral.domain.cause import Cause
from corral.domain.failure_class import FailureKind
from corral.domain.hang import HangAct
from corral.domain.hang_record import HangRecord
from corral.domain.ids import JobId
from corral.domain.observed_state import AttemptKey
from corral.domain.world import Changes
from corral.simulate.evidence import TrueHang
from corral.simulate.recorded_state import Books

# a head may not know yet of a step that was made
KNOWN_SECONDS = 5.0
USERS_HANGS = 3  # in a row at one step: the third is the user's


class HangOracle:
    """Checks I7, I14 and I17 of each recorded hang: the ranks stood still for the bound,
    the stuck rank is named or none is, and the right budget pays."""

    def __init__(self, books: Books) -> None:
        self._books = books
        self._recorded: set[AttemptKey] = set()
        self._steps: dict[
            JobId, tuple[int, int]
        ] = {}  # of hangs, and how many in a row

    def check(self, changes: Changes, decided_at: float) -> None:
        for attempt in changes.attempts:
            key = (attempt.job, attempt.number)
            if attempt.hang is None:
                self._recorded.discard(key)
            elif key not in self._recorded:
                self._recorded.add(key)
                self._check_hang(attempt, attempt.hang, decided_at)

    def _check_hang(
        self, attempt: Attempt, record: HangRecord, decided_at: float
    ) -> None:
        key = (attempt.job, attempt.number)
        hang = next(iter(self._books.evidence.hangs.get(key, ())), None)
        stage = self._books.stage
        bound = stage.hangs[self._books.jobs[attempt.job].spec.name].bound_seconds
        is_over = (
            hang is not None
            and hang.ended_at is not None
            and hang.ended_at < decided_at - KNOWN_SECONDS
        )
        if hang is None or is_over or decided_at - hang.began_at < bound:
            self._books.breach("I7", f"{key} is said to hang, but it is {hang}")
            return
        if record.rank is not None and (record.rank, record.node) != (
            hang.rank,
            hang.node,
        ):
            self._books.breach("I14", f"{key} is blamed on {record}, but it is {hang}")
        if record.act is HangAct.RESTART:
            self._check_end(attempt, record, hang)

    def _check_end(self, attempt: Attempt, record: HangRecord, hang: TrueHang) -> None:
        key = (attempt.job, attempt.number)
        is_wrong = record.blames_machine and not (
            hang.is_machines or self._had_gpu_fault(attempt, record)
        )
        is_missed = hang.is_machines and record.rank is not None
        if is_wrong or (is_missed and not record.blames_machine):
            self._books.breach("I14", f"{key} hung by {hang}, but it is {record}")
        if not record.blames_machine:
            step, count = self._steps.get(attempt.job, (-1, 0))
            is_same = step == hang.step
            self._steps[attempt.job] = (hang.step, count + 1 if is_same else 1)
        is_users = (
            not record.blames_machine and self._steps[attempt.job][1] >= USERS_HANGS
        )
        expected = Cause.USER if is_users else Cause.INFRA
        if (attempt.cause, attempt.failure) != (expected, FailureKind.STALL):
            self._books.breach(
                "I17", f"{key} hung, and {attempt.cause} pays, not {expected}"
            )
        if attempt.failed_on != (record.node if record.blames_machine else None):
            self._books.breach(
                "I14", f"the hang of {key} is blamed on node {attempt.failed_on}"
            )

    def _had_gpu_fault(self, attempt: Attempt, record: HangRecord) -> bool:
        gpus = {
            gpu
            for seat in attempt.seats
            if seat.node == record.node
            for gpu in seat.gpus
        }
        return record.node is not None and any(
            signal.gpu in gpus
            for signal in self._books.machines[record.node].disk.signals
        )
