"""Prediction of one row of a measured table, by kind of table."""
