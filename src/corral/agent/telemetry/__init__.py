"""Sensors of a node, read in a helper process, and the signals that follow from
them."""
