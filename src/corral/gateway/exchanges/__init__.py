"""Requests to any HTTP service, large forms, and WebSockets."""
