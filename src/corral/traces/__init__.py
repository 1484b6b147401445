"""Logs of real clusters: they are replayed as workloads under one or several scheduling
policies, and the results are shown on a page.

This package does not depend on the seeded worlds of `simulate`.
"""
