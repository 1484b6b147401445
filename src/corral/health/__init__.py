"""Signals of a node -> what to believe of it. Pure."""
