"""Policy settings of a queue: the order of its waiting jobs, its preemption, and the
visibility of its jobs."""

from enum import StrEnum


class Policy(StrEnum):
    """Order in which a queue lets its jobs start. A job of a higher priority always
    comes first."""

    # whoever has used least, of the queues and users in it; then by service
    DEFAULT = "default"
    FIFO = "fifo"  # by age alone; no job overtakes one that lacks room
    FIFO_SKIP = "fifo-skip"  # by age, but who has no room lets others pass
    SJF = "sjf"  # by how long the jobs of the same user, name and size have run
    BACKFILL = "backfill"  # by age; the first without room is promised a start (EASY)
    # by age; all without room are, the first of the line first
    CONSERVATIVE = "conservative"
    # one's own first, then by service over all below it; who owes has no own
    ATTAINED = "attained"

    @classmethod
    def _missing_(cls, value: object) -> "Policy | None":
        """Return ATTAINED for its name of older specs and stores."""
        return cls.ATTAINED if value == "service" else None

    @property
    def goes_by_age(self) -> bool:
        return self in (
            Policy.FIFO,
            Policy.FIFO_SKIP,
            Policy.BACKFILL,
            Policy.CONSERVATIVE,
        )

    @property
    def goes_by_service(self) -> bool:
        """Return whether the policy orders jobs by attained service."""
        return self in (Policy.DEFAULT, Policy.ATTAINED)


class Preempt(StrEnum):
    """Rule of preemption inside a queue: by priority or by service."""

    NEVER = "never"
    SAVING = "saving"  # those with a checkpoint rule: they lose little
    ANY = "any"


class Visibility(StrEnum):
    """Users who see the jobs of a queue, in addition to their owners and operators."""

    OWN = "own"  # no other user
    QUEUE = "queue"  # users who may submit to the queue
    ALL = "all"
