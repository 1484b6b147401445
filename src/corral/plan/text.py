"""Numbers as sentences of a report have them."""


def brief(value: float) -> str:
    """A number in four digits at the most, its thousands apart: "0.125", "4.916",
    "58,229"."""
    return f"{value:,.0f}" if abs(value) >= 1e4 else f"{value:,.4g}"
