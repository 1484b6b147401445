"""Requests to models, from the first attempt to the last byte."""
