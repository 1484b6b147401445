"""Predictions of the planner held against measured rows."""
