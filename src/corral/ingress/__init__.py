"""Limits on incoming network traffic, before and alongside authentication."""
