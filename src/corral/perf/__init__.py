"""Seconds, bytes and FLOPs of a training step, a request and a collective. The
functions are pure."""
