"""Answer of the API with a curve over time."""

from corral.wire.job_parts import ForecastView


class SeriesView(ForecastView):
    """Values of each field at these times (seconds since 1970); null: the value is
    unknown at that time. `pretend`: the values are from simulated GPUs, or include
    some."""

    key: str
    times: list[float]
    fields: dict[str, list[float | None]]
    pretend: bool = False
