"""Rules of what health does by itself, each taken out."""

from tests.simulate.mutant import Mutant

HEALTH = [
    Mutant(
        "the breaker lets all nodes be cordoned",
        "health.health_rules:HealthRules.most",
        "int(nodes * self.breaker_share)",
        "nodes",
        "I16",
        seed=5,
    ),
    Mutant(
        "a fault of one GPU ends who is on another",
        "reconcile.node_health:_is_on",
        "(held.job, held.attempt) in condition.attempts",
        "True",
        "I7 I17",
    ),
]
