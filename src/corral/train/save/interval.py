"""The interval between checkpoints, from the cost of a save and the cost of a failure."""

import math
from typing import Final

COST_FACTOR: Final = 10.0  # saving never takes more than a tenth of the time
LONGEST_SECONDS: Final = 4 * 3600.0


def young_daly_seconds(cost_seconds: float, mtbf_seconds: float) -> float:
    """Return the time between two saves for which the expected loss of work is
    smallest.

    Units: seconds; the cost is the time that one save takes away from training.
    Raises: ValueError unless the cost is at least 0 and the mean time between failures
    above 0.
    Source: Daly 2006, Future Generation Computer Systems 22(3), equation 37; its first
    term is Young 1974. Exact to third order for a cost below half the mean time between
    failures.
    """
    if cost_seconds < 0 or mtbf_seconds <= 0:
        raise ValueError(
            f"the cost of a save ({cost_seconds} s) must be at least 0, and the mean time "
            f"between failures ({mtbf_seconds} s) above 0"
        )
    if cost_seconds >= 2 * mtbf_seconds:
        return mtbf_seconds
    ratio = cost_seconds / (2 * mtbf_seconds)
    young = math.sqrt(2 * cost_seconds * mtbf_seconds)
    return young * (1 + math.sqrt(ratio) / 3 + ratio / 9) - cost_seconds


def gang_mtbf_seconds(
    node_mtbf_seconds: float, nodes: int, *, observed_seconds: float, failures: int
) -> float:
    """Return the mean time between failures of the gang. It combines the estimate for
    the nodes and the observed failures of the job.

    The estimate for the nodes counts as one observed failure; each failure of the job
    counts as one more.
    Raises: ValueError unless there is a node and its mean time between failures is
    above 0.
    """
    if node_mtbf_seconds <= 0 or nodes < 1:
        raise ValueError(
            f"the number of nodes ({nodes}) and their mean time between failures "
            f"({node_mtbf_seconds} s) must be above 0"
        )
    return (node_mtbf_seconds / nodes + max(0.0, observed_seconds)) / (
        1 + max(0, failures)
    )


def interval_seconds(
    *, cost_seconds: float, save_seconds: float, mtbf_seconds: float
) -> float:
    """Return the interval from the start of one save to the start of the next.

    The interval is at least ten times the cost of a save. It is also at least the
    duration of a save, so that two saves never overlap.
    """
    optimal_seconds = young_daly_seconds(cost_seconds, mtbf_seconds)
    min_seconds = max(COST_FACTOR * cost_seconds, save_seconds)
    return max(min_seconds, min(optimal_seconds, LONGEST_SECONDS))
