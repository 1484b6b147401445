"""Helper process of the head that computes plans: `python -m
corral.boot.planner_process`.

A plan takes seconds of processor time. A thread of the head would take that time from
the head's event loop, because only one of two threads runs Python at a time.
"""

import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from math import ceil
from typing import Final

import msgspec

if __name__ == "__main__":
    sys.modules["numba"] = None  # type: ignore[assignment]  # nothing here waits for a compiler

from corral.api.errors import TooMany
from corral.boot.helper_process import HelperProcess, answer_on
from corral.domain.errors import Bug, Refusal, Trouble
from corral.domain.ids import UserName
from corral.domain.quota import RateUse
from corral.ingress.buckets import TokenBuckets
from corral.ports.log import HeadLogger

PLAN_SECONDS: Final = 30.0  # for one plan
MOST_IN_LINE: Final = 32
MOST_OF_ONE_USER: Final = 4
HOUR_SECONDS: Final = 3600.0
log = HeadLogger("corral.boot")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannerRequest:
    """A planning request as JSON; `kind` is one of `plan.kinds`."""

    kind: str
    request: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannerAnswer:
    """Answer of the planner: a report as JSON, or the refusal of the request, or a
    fault of the planner itself."""

    report: bytes = b""
    refused: str = ""
    message: str = ""
    hint: str = ""
    fault: str = ""


_ASKED: Final = msgspec.msgpack.Decoder(PlannerRequest)
_ANSWERS: Final = msgspec.msgpack.Decoder(PlannerAnswer)


@dataclass(slots=True, kw_only=True)
class PlannerProcess:
    """Implementation of ports.Planner: one process, a bounded queue of waiting
    requests, and a budget of planning seconds for each user.

    Args:
        hourly_seconds: seconds of planning that one user may use in an hour.
    """

    clock: Callable[[], float]
    hourly_seconds: float
    _helper: HelperProcess = field(
        default_factory=lambda: HelperProcess("corral.boot.planner_process")
    )
    _in_line: Counter[UserName] = field(default_factory=Counter)
    _seconds: TokenBuckets = field(init=False)

    def __post_init__(self) -> None:
        self._seconds = TokenBuckets(
            rate=self.hourly_seconds / HOUR_SECONDS,
            burst=self.hourly_seconds,
            clock=self.clock,
        )

    @property
    def pid(self) -> int | None:
        """Return the id of the helper process; None before the first plan."""
        return self._helper.pid

    def seconds_of(self, user: UserName) -> RateUse:
        seconds = self._seconds
        return RateUse(
            used=seconds.used(user), most=seconds.burst, a_second=seconds.rate
        )

    async def plan(self, kind: str, request: bytes, *, by: UserName) -> bytes:
        self._check(by)
        self._in_line[by] += 1
        planner_request = PlannerRequest(kind=kind, request=request)
        try:
            answer = await self._ask(planner_request, by)
        finally:
            self._in_line[by] -= 1
            if not self._in_line[by]:
                del self._in_line[by]
        if answer.fault:
            raise Bug(
                f"the plan failed because of a bug in Corral: {answer.fault}",
                hint="look for this error in head.log",
            )
        if answer.refused:
            refusal = Refusal(answer.message, hint=answer.hint)
            refusal.code = answer.refused  # type: ignore[misc]
            raise refusal
        return answer.report

    def _check(self, by: UserName) -> None:
        """Check that the user may request a plan now. Raises: TooMany if too many plans
        of this user, or of all users, are waiting, or the user's planning time is used
        up."""
        own_count, all_ = self._in_line[by], self._in_line.total()
        if own_count >= MOST_OF_ONE_USER or all_ >= MOST_IN_LINE:
            raise TooMany(
                f"too many plans are being computed: {own_count} of {by}, {all_} in "
                f"total; allowed are {MOST_OF_ONE_USER} for one user, {MOST_IN_LINE} "
                "in total",
                hint="wait until they are ready, or plan on your own machine: corral "
                "plan",
                retry_seconds=2.0,
            )
        remaining_seconds = self._seconds.left(by)
        if remaining_seconds <= 0:
            wait = (1.0 - remaining_seconds) / self._seconds.rate
            raise TooMany(
                f"the plans of {by} have used the {self.hourly_seconds:g} s of "
                "computing time that one user may use in an hour",
                hint=f"wait {ceil(wait)} s, or plan on your own machine: corral plan; "
                "an admin can change the limit: corral up --plan-seconds N",
                retry_seconds=wait,
            )

    async def _ask(self, asked: PlannerRequest, by: UserName) -> PlannerAnswer:
        began: list[float] = []

        def text() -> bytes:
            began.append(self.clock())
            return msgspec.msgpack.encode(asked)

        try:
            return _ANSWERS.decode(await self._helper.ask(text, PLAN_SECONDS))
        except TimeoutError:
            raise Trouble(
                f"the plan was not ready within {PLAN_SECONDS:g} s",
                hint="request a smaller plan, or plan on your own machine: corral plan",
            ) from None
        except (OSError, EOFError, msgspec.MsgspecError) as error:
            log.warning("planner_lost", error=repr(error))
            raise Trouble("the planner process has ended", hint="try again") from error
        finally:
            if began:
                self._seconds.charge(by, self.clock() - began[0])

    async def close(self) -> None:
        """End the process, and wait until it is gone."""
        await self._helper.close()


def main() -> None:
    """Answer requests one after the other until the pipe is closed."""
    from corral.wire.plan_answers import report_of

    def answer(text: bytes) -> bytes:
        planner_request = _ASKED.decode(text)
        try:
            planner_answer = PlannerAnswer(
                report=report_of(planner_request.kind, planner_request.request)
            )
        except Refusal as error:
            planner_answer = PlannerAnswer(
                refused=error.code, message=error.message, hint=error.hint
            )
        except Exception as error:
            planner_answer = PlannerAnswer(fault=repr(error)[:1000])
        return msgspec.msgpack.encode(planner_answer)

    answer_on(answer)


if __name__ == "__main__":
    main()
