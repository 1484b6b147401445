"""Preemptions and reservations as durable records."""
