"""Replicas: connections to them, their state, their caches and their adapters."""
