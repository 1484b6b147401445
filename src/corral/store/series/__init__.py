"""Time series in a separate file: one day in full, one month as means, with a bound in
bytes."""

from corral.store.series.file import SeriesFile

__all__ = ["SeriesFile"]
