"""Choice of the replica for a request whose cost is not known: fewest in flight."""

from collections.abc import Collection, Sequence

from corral.route.choice import ReplicaState


def least_outstanding(
    replicas: Sequence[ReplicaState],
    *,
    exclude: Collection[str] = (),
    tie: int = 0,
    now: float = 0.0,
) -> ReplicaState | None:
    """Return the replica with the fewest requests in flight.

    The learned limit of a replica does not count: it is learned from times to a first
    token, and such requests have none.

    Args:
        exclude: Names of replicas that must not get the request.
        tie: Number that chooses among equals, such as a counter of requests.
        now: Time to which `ejected_until` is compared.

    Returns: None if each replica is excluded or ejected.
    """
    fitting = [
        state
        for state in replicas
        if state.ejected_until <= now and state.name not in exclude
    ]
    if not fitting:
        return None
    fewest = min(state.in_flight for state in fitting)
    equals = [state for state in fitting if state.in_flight == fewest]
    return equals[tie % len(equals)]
