"""Formatting of numbers in the sentences of a report."""


def brief(value: float) -> str:
    """Return a number with at most four digits, or whole with separated thousands:
    "0.125", "4.916", "58,229"."""
    return f"{value:,.0f}" if abs(value) >= 1e4 else f"{value:,.4g}"
