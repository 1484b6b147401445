"""Durable storage: SQLite, PostgreSQL and plain memory behind one Store interface. Only
this package holds SQL."""
