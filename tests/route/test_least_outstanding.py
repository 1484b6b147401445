"""Choice of a replica by the requests in flight alone."""

from corral.route.choice import ReplicaState
from corral.route.least_outstanding import least_outstanding


def states(*in_flight: int) -> list[ReplicaState]:
    made = [ReplicaState(name, limit=1) for name in "abcd"[: len(in_flight)]]
    for state, count in zip(made, in_flight, strict=True):
        state.in_flight = count
    return made


def names(replicas: list[ReplicaState], **options: object) -> set[str]:
    """The replicas that are chosen at some tie."""
    chosen = [
        least_outstanding(replicas, tie=tie, **options)  # type: ignore[arg-type]
        for tie in range(8)
    ]
    return {"" if state is None else state.name for state in chosen}


def test_the_fewest_in_flight_decide_whatever_the_limit_is() -> None:
    assert names(states(5, 3, 4)) == {"b"}
    assert names(states(5, 3, 3)) == {"b", "c"}


def test_an_excluded_or_ejected_replica_is_not_chosen() -> None:
    replicas = states(0, 1, 2)
    replicas[1].ejected_until = 10.0
    assert names(replicas, exclude=("a",), now=9.0) == {"c"}
    assert names(replicas, exclude=("a",), now=10.0) == {"b"}
    assert names(replicas, exclude=("a", "b", "c")) == {""}
    assert names([]) == {""}
