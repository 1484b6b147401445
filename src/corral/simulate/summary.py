"""Summary of many worlds, in numbers and in a few lines of text."""

from collections import Counter
from dataclasses import dataclass, field

from corral.simulate.scenario import WorldOutcome


@dataclass(slots=True)
class WorldSums:
    """Sums over simulated worlds. `broken`: outcomes of the worlds in which an
    invariant was broken."""

    worlds: int = 0
    jobs: int = 0
    replicas: int = 0
    attempts: int = 0
    commits: int = 0
    virtual_seconds: float = 0.0
    broken: list[WorldOutcome] = field(default_factory=list)

    def add(self, outcome: WorldOutcome) -> None:
        self.worlds += 1
        self.jobs += outcome.jobs
        self.replicas += outcome.replicas
        self.attempts += outcome.attempts
        self.commits += outcome.commits
        self.virtual_seconds += outcome.virtual_seconds
        if outcome.rule:
            self.broken.append(outcome)

    def text(self, seconds: float) -> str:
        """Return as text the broken worlds, and how much was simulated. `seconds`: the
        real time that this took."""
        lines = [breach_text(outcome) for outcome in self.broken]
        lines.append(
            f"{self.worlds} worlds, {self.virtual_seconds / 3600:.1f} simulated hours, "
            f"{self.jobs} jobs, {self.replicas} replicas, {self.attempts} attempts, "
            f"{self.commits} commits in {seconds:.1f} s: {len(self.broken)} worlds broke "
            "an invariant"
        )
        if self.broken:
            lines.append(str(dict(Counter(outcome.rule for outcome in self.broken))))
        return "\n".join(lines)


def breach_text(outcome: WorldOutcome) -> str:
    return f"seed {outcome.seed} broke {outcome.rule}: {outcome.text}"
