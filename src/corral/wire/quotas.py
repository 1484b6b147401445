"""Quotas of a user as the API answers them."""

from typing import Literal, Self

from corral.domain.quota import RULES, Quota, Quotas
from corral.wire.parts import Answer


class QuotaRow(Answer):
    """One quota: what is used of it (null where it bounds one request), and the limit. `set_by`:
    who has set the limit."""

    name: str
    text: str
    unit: Literal["count", "bytes"]
    used: int | None
    limit: int
    set_by: Literal["user", "cluster", "default"]

    @classmethod
    def of(cls, quota: Quota, quotas: Quotas, used: int | None) -> Self:
        rule = RULES[quota]
        return cls(
            name=quota,
            text=rule.text,
            unit="bytes" if rule.in_bytes else "count",
            used=used,
            limit=quotas.limit(quota),
            set_by=quotas.set_by(quota),
        )
