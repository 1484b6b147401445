"""Counters of the gateway, and how they are reported and kept."""
