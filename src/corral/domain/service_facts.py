"""Facts about services that come from the requests of their gateways."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from corral.domain.ids import JobId


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceFacts:
    """Measurements of a service by the gateways, and what follows from them.

    Args:
        wanted: Replicas that the demand needs; None: not known, the number stays.
        sleeping: Replicas that are to sleep; None: not known, the number stays.
        reason: Why it needs them.
        prefill_wanted: The same of its prefill replicas, which are in no other number.
        prefill_reason: Why it needs them.
        verdict: Whether the trial has passed; None: not decided yet.
        verdict_reason: Why.
        under_way: Requests under way by replica; a replica that is not in it is not
            known to the gateways.
    """

    wanted: int | None = None
    sleeping: int | None = None
    reason: str = ""
    prefill_wanted: int | None = None
    prefill_reason: str = ""
    verdict: bool | None = None
    verdict_reason: str = ""
    under_way: Mapping[JobId, int] = field(default_factory=dict)
