"""Limits on what comes in from the network, before and beside authentication."""
