"""What an engine cannot do for a job, and what a user can do instead."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLimit:
    """Reason why the engine refuses a field of a spec. `hint`: what to write instead."""

    reason: str
    hint: str


def service_limit(engine: str) -> EngineLimit:
    """Return the reason why this engine cannot run jobs that serve requests."""
    return EngineLimit(
        reason=f"the {engine} engine cannot serve requests yet",
        hint="remove kind: service and service: from the spec; it then runs as a job",
    )
