"""Devices, links, models and prices: data files whose every number has a unit, source
and date."""
