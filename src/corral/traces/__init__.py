"""Logs of clusters: workloads to replay under one policy or several, and a page of how
it went.

Nothing here knows of the seeded worlds next to it.
"""
