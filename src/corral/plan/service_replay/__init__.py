"""Replay of a trace of requests through `route`, on modelled replicas in virtual time."""
