"""Prediction of run times from ended jobs."""
