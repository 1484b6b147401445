"""Latest sensor values of every GPU, as they are sent to clients.

Each field is a list with one value for each GPU, so that answers stay small.
"""

from corral.wire.job_parts import ForecastView


class GpusOfNode(ForecastView):
    """GPUs of a node, in the order of its inventory.

    Each list has one value per GPU, and null where the value is unknown. `at`: time of
    the last sensor values that reached the head, by the node's clock; null: none yet.
    Shares are from 0 to 1. `holders`: ids of the jobs that hold the GPU, joined by
    commas. `signs`: lost, silent (its driver does not answer), taken (by a program that
    Corral did not start), or "". `pretend`: the GPUs are simulated, and their readings
    are derived from the processes of the jobs.
    """

    node: str
    at: float | None
    index: list[int]
    utilisation: list[float | None]
    memory: list[float | None]
    power_watts: list[float | None]
    temperature_celsius: list[float | None]
    holders: list[str]
    signs: list[str]
    pretend: bool = False


class GpusNow(ForecastView):
    """All GPUs, by node. `cost_per_hour`: cost of the GPUs that are held now, at the
    cluster's own prices in its `currency`. `list_cost_per_hour`: cost of held GPUs
    without an own price, at list prices of clouds, in USD. The two must not be added.
    `unpriced_gpus`: held GPUs without a known price, which are in neither cost."""

    cost_per_hour: float
    currency: str = "USD"
    list_cost_per_hour: float = 0.0
    unpriced_gpus: float
    nodes: list[GpusOfNode]
