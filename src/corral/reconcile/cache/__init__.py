"""Caches derived from the recorded world, updated by what has changed."""
