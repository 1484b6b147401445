"""Limits on incoming network traffic, applied before and alongside authentication."""
