"""Curves in a terminal: what is asked of the head for them, their rows, and how they
are drawn."""
