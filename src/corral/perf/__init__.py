"""Seconds, bytes and FLOPs of a step, a request and a collective. Pure."""
