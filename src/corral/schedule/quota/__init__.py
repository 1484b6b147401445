"""Quotas of queues and users."""
