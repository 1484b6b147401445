"""Storage of time series in a separate file of limited size: one day in full, one month
as means."""

from corral.store.series.file import SeriesFile

__all__ = ["SeriesFile"]
