"""A curve, as it is answered."""

from corral.wire.job_parts import ForecastView


class SeriesView(ForecastView):
    """Values of each field at these moments (seconds since 1970); null: not known then.
    `pretend`: they are readings of pretend GPUs, or were made of some."""

    key: str
    times: list[float]
    fields: dict[str, list[float | None]]
    pretend: bool = False
