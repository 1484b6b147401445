"""Curves in a file of their own: a day in full, a month thinned out, bounded in
bytes."""

from corral.store.series.file import SeriesFile

__all__ = ["SeriesFile"]
