"""Observation of programs that do not report their progress."""
