"""Caches over the recorded world, refreshed by what has changed."""
