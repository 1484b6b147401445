"""What an engine cannot do for a job, and what a user can do instead."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLimit:
    """Reason why the engine refuses a field of a spec. `hint`: what to write instead."""

    reason: str
    hint: str
