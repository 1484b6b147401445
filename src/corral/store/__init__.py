"""Durable memory: SQLite and plain memory behind one Store. The only room with SQL."""
