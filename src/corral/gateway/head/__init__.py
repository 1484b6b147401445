"""Requests that the head answers, through the gateway."""
