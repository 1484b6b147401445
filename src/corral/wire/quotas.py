"""Answers of the API about a user's quotas."""

from typing import Literal, Self

from corral.domain.quota import RULES, Quota, Quotas, RateUse
from corral.wire.job_parts import ForecastView


class RateRow(ForecastView):
    """One rate limit. `used`: the amount that was used and has not been refilled yet.
    `limit`: the highest amount. `a_second`: the amount that is refilled each second."""

    name: Literal["requests", "plan_seconds"]
    text: str
    used: float
    limit: float
    a_second: float

    @classmethod
    def of(cls, name: Literal["requests", "plan_seconds"], use: RateUse) -> Self:
        texts = {
            "requests": "requests over the API",
            "plan_seconds": "seconds of planning",
        }
        return cls(
            name=name,
            text=texts[name],
            used=round(use.used, 1),
            limit=use.most,
            a_second=use.a_second,
        )


class QuotaRow(ForecastView):
    """One quota of a user. `used`: the used amount (null if it is not counted by the
    head). `limit`: null if there is no limit. `set_by`: where the limit was set."""

    name: str
    text: str
    unit: Literal["count", "bytes"]
    used: int | None
    limit: int | None
    set_by: Literal["user", "cluster", "default"]

    @classmethod
    def of(cls, quota: Quota, quotas: Quotas, used: int | None) -> Self:
        rule = RULES[quota]
        return cls(
            name=quota,
            text=rule.text,
            unit="bytes" if rule.in_bytes else "count",
            used=used,
            limit=quotas.find_limit(quota),
            set_by=quotas.set_by(quota),
        )
