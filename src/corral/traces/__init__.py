"""Logs of clusters: workloads to replay under one policy or several, and a page with
the results.

This package does not depend on the seeded worlds of `simulate`.
"""
