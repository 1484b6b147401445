"""Request whose prompt one replica computes and whose answer another one generates.

The client never sees that: where the prefill replica is away, refuses, is late or fails,
the other replica does all of the work.
"""

from abc import abstractmethod
from enum import StrEnum
from typing import Final, NamedTuple

from corral.gateway.access.callers import GatewayCaller
from corral.gateway.continuation.continuation_requests import (
    MOST_BODY_BYTES,
    read_fields,
)
from corral.gateway.counting.token_counts import read_usage
from corral.gateway.framing.answer_framing import AnswerHead
from corral.gateway.framing.request_body import BodyFields
from corral.gateway.framing.request_head import RequestHead
from corral.gateway.replicas.replica_connection import LossKind
from corral.gateway.replicas.replica_pool import ReplicaPool
from corral.gateway.replicas.service_replicas import USUAL_OUTPUT_LIMIT
from corral.gateway.requests.attempt import ReplicaAttempt
from corral.gateway.requests.prefill_stage import PrefillStage
from corral.gateway.requests.raced_request import RacedRequest
from corral.gateway.requests.routed_request import (
    TOKENS_PER_BLOCK,
    RelayHost,
    RequestPhase,
)
from corral.gateway.requests.transfer_bodies import (
    TRANSFER_PATHS,
    begins_with_error,
    can_be_divided,
    decode_body,
    prefill_body,
    sglang_bodies,
    with_cached_tokens,
    without_transfer_fields,
)
from corral.gateway.routing.service_route import ServiceRoute
from corral.route.choice import ReplicaChoice
from corral.route.prefill_choice import RoleChoice, RoutedPrompt, pick_roles

# vLLM keeps the blocks of a prompt for 30 s, and whoever reads them later gets others
TRANSFER_SECONDS: Final = 10.0
STAGE_SHARE: Final = (
    0.5  # of the deadline, so that the other replica can do all in time
)
BAD_REQUEST: Final = (400, 404, 413, 422)  # statuses that are no fault of a replica
BUSY_SECONDS: Final = 1.0  # without a prompt for a replica that says it is busy
MOST_PAIRS: Final = 2  # of SGLang that a request is sent to because prefill has failed


class PrefillOutcome(StrEnum):
    """Place where the prompt of a request was computed, and why."""

    APART = "apart"
    NOT_WORTH_IT = "not_worth_it"
    NO_REPLICA = "no_replica"  # for prefill that takes requests now
    UNFIT = "unfit"  # a request whose answer depends on who computes its prompt
    REFUSED = "refused"  # by the prefill replica
    LOST = "lost"
    LATE = "late"
    EXPIRED = "expired"  # the replica for the answer was busy for too long
    TRANSFER_FAILED = "transfer_failed"


class ComputedPrompt(NamedTuple):
    """Prompt that a prefill replica has computed, for the next attempt.

    Attributes:
        body: What the other replica gets; None: the request's own body.
        cached: Tokens of the prompt that were cached at the prefill replica.
        sent_tokens: Tokens whose cache is sent.
        until: Time until which it is valid.
        can_be_reused: Whether more than one replica can take it.
    """

    body: bytes | None
    cached: int
    sent_tokens: int
    until: float
    can_be_reused: bool


class PrefilledRequest(RacedRequest):
    """One request, with a stage for its prompt if that pays."""

    __slots__ = (
        "_answers",
        "_attempts",
        "_computed",
        "_failed_prefill",
        "_has_prefilled",
        "_outcome",
        "_pairs",
        "_prefill_name",
        "_prefilled_at",
        "_sent_tokens",
        "_stage",
    )

    def __init__(
        self,
        gateway: RelayHost,
        service: ServiceRoute,
        caller: GatewayCaller,
        head: RequestHead,
        body: bytes,
        request_id: bytes,
        revision: int | None,
    ) -> None:
        super().__init__(gateway, service, caller, head, body, request_id, revision)
        self._stage: PrefillStage | None = None
        self._computed: ComputedPrompt | None = None
        self._outcome: PrefillOutcome | None = None
        self._attempts = 0
        self._failed_prefill: tuple[str, ...] = ()
        self._has_prefilled = False
        self._prefill_name = ""
        self._prefilled_at: float | None = None
        self._sent_tokens = 0
        self._answers = 1
        self._pairs = 0

    def begin(self, fields: BodyFields, now: float) -> None:
        if self.service.entry.transfer:
            assert self._body is not None
            self._body = without_transfer_fields(self._body)
            self._answers = fields.n or 1
        super().begin(fields, now)

    def is_at(self, pool: ReplicaPool) -> bool:
        stage = self._stage
        if stage is not None and stage.attempt is not None:
            attempt = stage.attempt
            if attempt.pool is pool and attempt.connection is not None:
                return True
        return super().is_at(pool)

    @property
    def _is_pair(self) -> bool:
        """Whether both replicas get the request at once: SGLang does nothing alone."""
        service = self.service
        return (
            service.entry.transfer == "sglang"
            and self._head.path in TRANSFER_PATHS["sglang"]
        )

    # the choice

    def _send_to(self, choice: ReplicaChoice, now: float) -> bool:
        if not self.service.entry.transfer or self._slow is not None:
            return super()._send_to(choice, now)
        computed = self._take_computed(now)
        if computed is not None:
            first = ReplicaChoice(choice.replica, 1, 0, choice.seconds)
            self._send_prefilled(self._begin_attempt(first, now), computed, now)
            return True
        if self._is_pair:
            roles = self._pick_roles(choice, now)
            if roles is None:
                self._outcome = PrefillOutcome.NO_REPLICA
                return False
            self._send_pair(roles, now)
            return True
        return self._divided(choice, now) or super()._send_to(choice, now)

    def _take_computed(self, now: float) -> ComputedPrompt | None:
        computed = self._computed
        if computed is None:
            return None
        if self._is_moved:
            self._computed = None
            return None
        if now > computed.until:
            self._computed = None
            self._outcome = PrefillOutcome.EXPIRED
            return None
        if not computed.can_be_reused:
            self._computed = None
        return computed

    def _divided(self, choice: ReplicaChoice, now: float) -> bool:
        """Begin with the prompt at a prefill replica; return whether that pays."""
        if self._has_prefilled or self._is_moved:
            return False
        path = self._head.path
        service = self.service
        if path not in TRANSFER_PATHS[service.entry.transfer]:
            return False
        body = self._body
        if not self._is_divisible() or body is None:
            self._outcome = PrefillOutcome.UNFIT
            return False
        roles = self._pick_roles(choice, now)
        if roles is None:
            self._outcome = PrefillOutcome.NO_REPLICA
            return False
        if not service.prefill.admits(roles):
            self._outcome = PrefillOutcome.NOT_WORTH_IT
            return False
        fields = read_fields(body)
        if fields is None or not can_be_divided(fields):
            self._outcome = PrefillOutcome.UNFIT
            return False
        self._begin_stage(
            roles, prefill_body(service.entry.transfer, path, fields), now
        )
        return True

    def _is_divisible(self) -> bool:
        continuation = self._continuation
        return (
            self.adapter is None
            and self._previous_response is None
            and self._answers == 1
            and self._output_limit != 1
            and not (continuation is not None and continuation.is_preparing)
            and self._body is not None
            and len(self._body) <= MOST_BODY_BYTES
        )

    def _pick_roles(self, choice: ReplicaChoice, now: float) -> RoleChoice | None:
        service = self.service
        decode, prefill = service.role_states(service.pools[choice.replica.name])
        if not prefill:
            return None
        prompt = RoutedPrompt(
            self._prompt_tokens, self._hashes, TOKENS_PER_BLOCK, self._output_tokens
        )
        return pick_roles(
            choice,
            decode,
            prefill,
            prompt,
            service.prefill.transfer,
            exclude=(
                *self._excluded,
                *self._failed_prefill,
                *(() if self._is_pair else service.prefill.paused(now)),
            ),
            tie=service.next_tie(),
            now=now,
        )

    # the stage

    def _begin_stage(self, roles: RoleChoice, body: bytes, now: float) -> None:
        """Send the prompt to its replica; the other one keeps a place for the answer."""
        self._has_prefilled = True
        self._prefilled_at = now
        self._take_pair_places(roles, body, now).is_reserved = True
        self.deadline = now + self.service.prefill.late_seconds(
            roles.prefill_seconds, STAGE_SHARE * self.service.entry.deadline_seconds
        )
        assert self._stage is not None
        self._stage.begin()

    def _take_pair_places(
        self, roles: RoleChoice, body: bytes, now: float
    ) -> ReplicaAttempt:
        """Take a place at both replicas; return the attempt of the answer."""
        self._sent_tokens = roles.decode.new_tokens
        first = ReplicaChoice(roles.decode.replica, 1, 0, roles.decode.seconds)
        attempt = self._begin_attempt(first, now)
        self._prefill_name = roles.prefill.replica.name
        pool = self.service.pools[self._prefill_name]
        if self._hashes:
            pool.state.index.add(self._hashes)
        prompt = ReplicaAttempt(pool, roles.prefill.new_tokens, now)
        self._stage = PrefillStage(self, prompt, self._head, self._request_id, body)
        return attempt

    def _send_pair(self, roles: RoleChoice, now: float) -> None:
        """Send the request to two replicas of SGLang, which meet by themselves."""
        body = self._body
        fields = None if body is None else read_fields(body)
        assert fields is not None
        pool = self.service.pools[roles.prefill.replica.name]
        bodies = sglang_bodies(fields, pool.entry)
        self._outcome = PrefillOutcome.APART
        self._pairs += 1
        attempt = self._take_pair_places(roles, bodies.prefill, now)
        attempt.body = bodies.decode
        assert self._stage is not None
        self._stage.begin()
        self._send(attempt, now)

    def prefill_done(self, stage: PrefillStage, status: int, answer: bytes) -> None:
        """Go on with the answer, now that the prompt is computed."""
        now = self._gateway.now()
        prompt = stage.attempt
        assert prompt is not None
        if status != 200:
            self._note_refusal(prompt.pool, status, now)
            self._end_stage()
            if not (self._is_pair and status in BAD_REQUEST):  # the other one says so
                self._go_on_without(PrefillOutcome.REFUSED)
            return
        self.service.note_success(prompt.pool, self.fingerprint, now)
        usage = read_usage(answer)
        prompt.learn_prompt(self.service, usage, now)
        if usage is not None:
            prompt.learn_cached(self._hashes, usage)
        self._end_stage()
        transfer = self.service.entry.transfer
        if transfer == "sglang":
            return
        body = self._body
        decoded = None
        if transfer == "vllm":
            decoded = None if body is None else decode_body(body, answer)
            if decoded is None:
                self._go_on_without(PrefillOutcome.REFUSED)
                return
        self._computed = ComputedPrompt(
            decoded,
            0 if usage is None else usage.cached,
            self._sent_tokens,
            now + TRANSFER_SECONDS,
            can_be_reused=transfer == "shared",
        )
        self._go_on(now)

    def _go_on(self, now: float) -> None:
        """Send the request to the replica that has kept a place, if it still can."""
        attempt = self._attempt
        assert attempt is not None
        if not attempt.pool.is_listed or attempt.pool.state.ejected_until > now:
            self._choose_again(attempt)
            return
        computed = self._take_computed(now)
        assert computed is not None
        attempt.restart(now)
        self._send_prefilled(attempt, computed, now)

    def _send_prefilled(
        self, attempt: ReplicaAttempt, computed: ComputedPrompt, now: float
    ) -> None:
        attempt.take_prompt(computed.body, computed.cached, computed.sent_tokens)
        self._outcome = PrefillOutcome.APART
        self._send(attempt, now)

    def _send(self, attempt: ReplicaAttempt, now: float) -> None:
        if self._prefilled_at is not None:  # one deadline for both parts
            attempt.begun_at = self._prefilled_at
            self._prefilled_at = None
        super()._send(attempt, now)
        if attempt.body is not None and not self._is_pair:
            output = 1 if self._is_stream else self._output_limit or USUAL_OUTPUT_LIMIT
            seconds = self.service.prefill.late_transfer_seconds(
                self._sent_tokens, attempt.pool.state, output
            )
            self.deadline = min(self.deadline, now + seconds)

    def prefill_lost(self, stage: PrefillStage, kind: LossKind) -> None:
        """Let the other replica do all: the prefill replica has failed."""
        now = self._gateway.now()
        prompt = stage.attempt
        assert prompt is not None
        pool = prompt.pool
        self._failed_prefill = (*self._failed_prefill, pool.state.name)
        if kind is LossKind.CLOSED:
            self._attempts += 1  # the replica may have died of this request
            pool.note_loss(self.fingerprint, now)
            self.service.check_alive(pool, self._gateway.now)
        self.service.note_failure(pool, kind, now)
        self._end_stage()
        is_late = kind is LossKind.NO_FIRST_BYTE
        self._go_on_without(PrefillOutcome.LATE if is_late else PrefillOutcome.LOST)

    def _note_refusal(self, pool: ReplicaPool, status: int, now: float) -> None:
        """Count an answer that has no prompt; a bad request is no fault of the replica."""
        if status in (429, 503):
            self.service.hold_back(pool, BUSY_SECONDS, now)
        elif status in (401, 403):
            self.service.note_failure(pool, LossKind.WRONG_KEY, now)
        elif status >= 500:
            self.service.note_failure(pool, LossKind.UNAVAILABLE, now)

    def _go_on_without(self, outcome: PrefillOutcome) -> None:
        """Send the request to a replica that computes the prompt too."""
        attempt = self._attempt
        if self._is_pair:
            is_sent = self._phase is RequestPhase.SENT and attempt is not None
            if not is_sent or self._pairs >= MOST_PAIRS:
                return  # the answer has begun, or the other replica says what happened
        assert attempt is not None
        self._outcome = outcome
        self._computed = None
        attempt.drop_connection()
        self._choose_again(attempt)

    def _note_transfer(self, *, has_failed: bool) -> None:
        """Count the transfer of the cache to the replica that answers."""
        self.service.prefill.note_transfer(
            self._prefill_name, self._gateway.now(), has_failed=has_failed
        )

    def _end_stage(self) -> None:
        """End the work on the prompt, if there is any."""
        stage = self._stage
        self._stage = None
        if stage is not None:
            stage.end()

    # deadlines and failures

    def _expire_prefill(self, now: float) -> bool:
        """Handle the deadline of a prompt or of its way to the other replica; return
        whether it was one."""
        stage = self._stage
        if stage is not None and stage.attempt is not None:
            prompt = stage.attempt
            rates = prompt.pool.state.rates
            rates.observe_first_token(self._prompt_tokens, now - prompt.sent_at)
            prompt.drop_connection()
            self.prefill_lost(stage, LossKind.NO_FIRST_BYTE)
            return True
        attempt = self._attempt
        if (
            attempt is None
            or attempt.body is None
            or self._is_pair
            or self._phase is not RequestPhase.SENT
            or not self._can_replay()
        ):
            return False
        if self._has_other(attempt.pool, now):
            self._excluded = (*self._excluded, attempt.pool.state.name)
        self._note_transfer(has_failed=True)
        self._go_on_without(PrefillOutcome.TRANSFER_FAILED)
        return True

    def _is_transfer_refused(self, head: AnswerHead, payload: bytes) -> bool:
        """Handle an answer which says that the cache did not come; return whether it was
        one."""
        attempt = self._attempt
        if attempt is None or attempt.body is None or not self._can_replay():
            return False
        if self._is_pair and self._pairs >= MOST_PAIRS:
            return False
        has_failed = head.status == 500 or (
            head.status == 200 and head.is_event_stream and begins_with_error(payload)
        )
        # the engine may know nothing of transfers; SGLang does
        is_refused = head.status in BAD_REQUEST and not self._is_pair
        if not (has_failed or is_refused):
            return False
        if has_failed:
            self._note_transfer(has_failed=True)
        self._end_stage()
        self._go_on_without(PrefillOutcome.TRANSFER_FAILED)
        return True

    def _count_prefill(self) -> None:
        if self._outcome is not None:
            self.service.metrics.count_prefill(self._outcome.value)

    def _corrected(self, payload: bytes) -> bytes:
        """Return a part of the answer with the cached tokens that were cached before."""
        attempt = self._attempt
        if attempt is None or attempt.prefilled_cached is None:
            return payload
        return with_cached_tokens(payload, attempt.prefilled_cached)

    @abstractmethod
    def _can_replay(self) -> bool:
        """Return whether the request can be sent again."""

    @abstractmethod
    def _has_other(self, pool: ReplicaPool, now: float) -> bool:
        """Return whether another replica can take the request now."""
