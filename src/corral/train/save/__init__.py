"""Saves of a training run: how they are written, verified, chosen, loaded and removed."""
