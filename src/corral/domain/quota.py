"""Quotas of one user: what each quota limits, the usual limits, and the refusal of a
request that exceeds a limit.

A user's own limit takes precedence, then the cluster's, then the usual limit of the
role. A new quota needs only a row in RULES and a number in Usage.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Literal

from corral.domain.errors import Refusal, SpecInvalid
from corral.domain.ids import UserName
from corral.domain.units import bytes_of, size_text
from corral.domain.users import Role

MEGABYTE: Final = 1000**2
GIGABYTE: Final = 1000**3
EXAMPLE_LIMIT: Final = 600  # of a quota that has no usual one
SLOWER: Final = "send fewer requests; an answer with 429 says when to send the next one"
Limits = tuple[tuple[str, int], ...]  # name of a quota, and its limit; sorted by name


class Quota(StrEnum):
    """Amount that a quota of a user limits, such as the number of jobs."""

    JOBS = "jobs"
    ARRAY = "array"
    SPEC_BYTES = "spec_bytes"
    UPLOAD_BYTES = "upload_bytes"
    LOG_BYTES = "log_bytes"
    JOB_LOG_BYTES = "job_log_bytes"
    SECRETS = "secrets"
    SECRET_BYTES = "secret_bytes"
    TOKENS = "tokens"
    REQUESTS_PER_MINUTE = "requests_per_minute"
    TOKENS_PER_MINUTE = "tokens_per_minute"
    CONCURRENT_REQUESTS = "concurrent_requests"
    TOKENS_PER_MONTH = "tokens_per_month"


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaRule:
    """Rule of one quota. `usual` and `of_admins` are the default limits of users and
    admins; None: no limit. `least` and `most` are the lowest and the highest limit that
    can be set. `room` explains how a user can get below the limit again. `text` is what
    is counted."""

    text: str
    usual: int | None
    of_admins: int | None
    most: int
    room: str
    least: int = 0
    in_bytes: bool = False

    def amount(self, number: int) -> str:
        """Return the number for people: "20,000", "512 MB"."""
        return size_text(number) if self.in_bytes else f"{number:,}"


RULES: Final[Mapping[Quota, QuotaRule]] = {
    Quota.JOBS: QuotaRule(
        text="unfinished jobs",
        usual=20_000,
        of_admins=100_000,
        most=1_000_000,
        room="wait until some jobs end, or stop some (corral ps lists them)",
    ),
    Quota.ARRAY: QuotaRule(
        text="jobs of one array",
        usual=10_000,
        of_admins=10_000,
        most=10_000,
        room="submit the array in parts: --array 0-{last}",
    ),
    Quota.SPEC_BYTES: QuotaRule(
        text="bytes of stored specs",
        usual=512 * MEGABYTE,
        of_admins=2 * GIGABYTE,
        most=100 * GIGABYTE,
        in_bytes=True,
        room="put large values of env and long commands into files of the workdir",
    ),
    Quota.UPLOAD_BYTES: QuotaRule(
        text="bytes of uploaded workdirs",
        usual=10 * GIGABYTE,
        of_admins=50 * GIGABYTE,
        most=100_000 * GIGABYTE,
        in_bytes=True,
        room="leave large files out of the workdir (.corralignore), or keep them on a shared path",
    ),
    Quota.LOG_BYTES: QuotaRule(
        text="bytes of kept logs",
        usual=20 * GIGABYTE,
        of_admins=100 * GIGABYTE,
        most=100_000 * GIGABYTE,
        in_bytes=True,
        room="let the jobs print less; the oldest logs are cut first",
    ),
    Quota.JOB_LOG_BYTES: QuotaRule(
        text="bytes of kept logs of one job",
        usual=10 * GIGABYTE,
        of_admins=50 * GIGABYTE,
        most=100_000 * GIGABYTE,
        in_bytes=True,
        room="let the job print less; the logs of earlier attempts are cut first",
    ),
    Quota.SECRETS: QuotaRule(
        text="secrets",
        usual=200,
        of_admins=1_000,
        most=100_000,
        room="remove a secret: corral secret rm NAME",
    ),
    Quota.SECRET_BYTES: QuotaRule(
        text="bytes of secrets",
        usual=4 * MEGABYTE,
        of_admins=20 * MEGABYTE,
        most=GIGABYTE,
        in_bytes=True,
        room="remove a secret: corral secret rm NAME",
    ),
    Quota.TOKENS: QuotaRule(
        text="valid tokens",
        usual=200,
        of_admins=1_000,
        most=100_000,
        room="revoke a token: corral token ls; corral token revoke ID",
    ),
    Quota.REQUESTS_PER_MINUTE: QuotaRule(
        text="requests a minute to services",
        usual=None,
        of_admins=None,
        least=1,
        most=10_000_000,
        room=SLOWER,
    ),
    Quota.TOKENS_PER_MINUTE: QuotaRule(
        text="tokens a minute of services, in and out",
        usual=None,
        of_admins=None,
        least=1,
        most=1_000_000_000_000,
        room=SLOWER,
    ),
    Quota.TOKENS_PER_MONTH: QuotaRule(
        text="tokens of services in a calendar month, in and out",
        usual=None,
        of_admins=None,
        most=1_000_000_000_000_000,
        room="wait for the next month",
    ),
    Quota.CONCURRENT_REQUESTS: QuotaRule(
        text="concurrent requests to services",
        usual=None,
        of_admins=None,
        least=1,
        most=1_000_000,
        room=SLOWER,
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class UserHoldings:
    """Amounts that one user has in the store."""

    spec_bytes: int = 0
    upload_bytes: int = 0
    secrets: int = 0
    secret_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RateUse:
    """State of one rate limit of a user at one moment.

    Args:
        used: Amount that was used recently and has not been refilled yet.
        most: Limit of that amount.
        a_second: Amount that is refilled each second.
    """

    used: float
    most: float
    a_second: float


class OverQuota(Refusal):
    """Refusal of a request that exceeds a quota of the user."""

    code = "over_quota"


@dataclass(frozen=True, slots=True, kw_only=True)
class Quotas:
    """Limits of one user. `own` were set for this user, `cluster` for all users."""

    user: UserName
    role: Role
    own: Mapping[str, int] = field(default_factory=dict)
    cluster: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of_unknown(cls, user: UserName, cluster: Mapping[str, int]) -> "Quotas":
        """Return the limits of a user who was removed: those of ordinary users."""
        return cls(user=user, role=Role.USER, cluster=cluster)

    def limit(self, quota: Quota) -> int:
        """Return the limit that holds for this user, of a quota that has a usual one."""
        limit = self.find_limit(quota)
        assert limit is not None
        return limit

    def find_limit(self, quota: Quota) -> int | None:
        """Return the limit that holds for this user; None: no limit."""
        rule = RULES[quota]
        usual = rule.of_admins if self.role == Role.ADMIN else rule.usual
        return self.own.get(quota, self.cluster.get(quota, usual))

    def set_by(self, quota: Quota) -> Literal["user", "cluster", "default"]:
        """Return where the limit comes from."""
        if quota in self.own:
            return "user"
        return "cluster" if quota in self.cluster else "default"

    def check(self, quota: Quota, *, used: int, asked: int) -> None:
        """Check that the used and the requested amount together are within the limit.

        Raises: OverQuota if they exceed it.
        """
        limit, rule = self.limit(quota), RULES[quota]
        if not asked or used + asked <= limit:
            return
        room = rule.room.format(user=self.user, last=max(0, limit - 1))
        raise OverQuota(
            f"{self.user} may have at most {rule.amount(limit)} {_quota_noun(rule)}; "
            f"{rule.amount(used)} are in use, and this request needs "
            f"{rule.amount(asked)} more",
            hint=f"{room}; an admin may run: corral user set {self.user} {option_of(quota)} "
            f"{_sufficient_limit(rule, used + asked)}",
        )


def _quota_noun(rule: QuotaRule) -> str:
    """Return the noun of what a quota counts, for an error message. A leading "bytes"
    is left out, because amounts in bytes are written with their unit."""
    return rule.text.removeprefix("bytes ") if rule.in_bytes else rule.text


def _sufficient_limit(rule: QuotaRule, number: int) -> str:
    """Return `number` as a limit in the form in which it is typed. Bytes are rounded up
    to whole MB."""
    if not rule.in_bytes:
        return str(number)
    return f"{-(-number // MEGABYTE)}MB"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterLimits:
    """Limits of one cluster. `quotas` are the limits of users who have none of their
    own, by name. `disk_reserve_bytes` is how much of the head's disk stays free; None:
    a part of the disk. `user_requests` is the number of requests per second of one
    user. `model_cache_bytes` is how much of a node's disk models may take; None: a fifth
    of the disk."""

    quotas: Mapping[str, int] = field(default_factory=dict)
    disk_reserve_bytes: int | None = None
    user_requests: float = 200.0
    model_cache_bytes: int | None = None

    @classmethod
    def of(cls, quotas: Iterable[str], disk_reserve: str | None) -> "ClusterLimits":
        """Return the limits in words like "jobs=5000" and "5GB". Raises:
        SpecInvalid."""
        try:
            reserve = None if disk_reserve is None else bytes_of(disk_reserve)
        except ValueError as error:
            raise SpecInvalid(
                str(error), hint="for example: corral up --disk-reserve 5GB"
            ) from None
        return cls(quotas=limits_in(quotas), disk_reserve_bytes=reserve)


def option_of(quota: Quota) -> str:
    """Return the option of `corral user set` that sets this limit."""
    return f"--max-{quota.replace('_', '-')}"


def quota_named(name: str) -> Quota:
    """Return the quota of this name. Raises: SpecInvalid."""
    if name not in set(Quota):
        raise SpecInvalid(
            f"there is no quota {name[:60]!r}",
            hint=f"use one of: {', '.join(sorted(Quota))}",
        )
    return Quota(name)


def limit_in(
    name: str, value: str | int, *, of_user: bool = False
) -> tuple[Quota, int]:
    """Return the quota of this name and the limit that is written as "20000" or
    "512MB".

    Args:
        of_user: Whether examples in errors are options of `corral user set`, else
            values of `--quota`.

    Raises: SpecInvalid.
    """
    quota = quota_named(name)
    rule = RULES[quota]
    usual = _sufficient_limit(rule, rule.usual or EXAMPLE_LIMIT)
    option_text = (
        f"{option_of(quota)} {usual}" if of_user else f"--quota {quota}={usual}"
    )
    example = f"for example: {option_text}"
    try:
        number = value if isinstance(value, int) else _parse_limit(value, rule)
    except ValueError:
        kind = "size" if rule.in_bytes else "whole number"
        raise SpecInvalid(
            f"{quota}: {value!r:.60} is not a {kind}", hint=example
        ) from None
    if not rule.least <= number <= rule.most:
        raise SpecInvalid(
            f"{quota}: {number:,} is out of range: it must be from {rule.least} to "
            f"{rule.most:,}",
            hint=example,
        )
    return quota, number


def _parse_limit(text: str, rule: QuotaRule) -> int:
    return bytes_of(text) if rule.in_bytes else int(text)


def limits_in(words: Iterable[str]) -> dict[str, int]:
    """Return the limits in words like "jobs=20000". Raises: SpecInvalid."""
    limits: dict[str, int] = {}
    for option_text in words:
        name, equals, value = option_text.partition("=")
        if not equals:
            raise SpecInvalid(
                f"{option_text[:60]!r} is not of the form QUOTA=LIMIT",
                hint="for example: --quota jobs=20000",
            )
        quota, number = limit_in(name.strip(), value.strip())
        limits[quota] = number
    return limits
