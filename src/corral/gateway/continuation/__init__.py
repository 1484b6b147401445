"""Streams that another replica goes on with."""
