"""Comparison of the planner's predictions with measured rows."""
