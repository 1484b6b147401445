"""Predictions for single rows of measured tables, by kind of table."""
