"""Request with two attempts, of which the first to answer goes on."""

from corral.gateway.framing.answer_framing import AnswerHead
from corral.gateway.requests.attempt import ReplicaAttempt
from corral.gateway.requests.routed_request import RequestPhase, RoutedRequest
from corral.gateway.requests.slow_attempt import SlowAttempt


class RacedRequest(RoutedRequest):
    """One request whose late attempt may race with another one."""

    __slots__ = ()

    def _begin_race(self, attempt: ReplicaAttempt, now: float) -> None:
        """Begin another attempt; the one so far goes on until either has answered."""
        self._slow = SlowAttempt(self, attempt)
        self._attempt = None
        self._excluded = (*self._excluded, attempt.pool.state.name)
        self.send_or_wait(now)

    def slow_attempt_answers(
        self, head: AnswerHead, payload: bytes, *, is_done: bool
    ) -> None:
        """Go on with the slow attempt, which has answered first."""
        self._leave_queue()
        if self._attempt is not None:
            self._attempt.drop_connection()
            self._attempt.leave()
        self._return_to_slow_attempt()
        self.answer_begins(head, payload, is_done=is_done)

    def _return_to_slow_attempt(self) -> None:
        """Make the slow attempt the only one."""
        assert self._slow is not None
        attempt = self._slow.attempt
        self._slow = None
        self._attempt = attempt
        self._phase = RequestPhase.SENT
        self.deadline = attempt.begun_at + self._deadline_seconds
        if attempt.connection is not None:
            attempt.connection.receiver = self

    def drop_slow_attempt(self) -> None:
        """Give up the slow attempt, if there is one."""
        if self._slow is not None:
            self._slow.attempt.drop_connection()
            self._slow.attempt.leave()
            self._slow = None
