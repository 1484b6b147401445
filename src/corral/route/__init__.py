"""Routing of inference requests: choice of a replica, health of replicas, limits and
queues. Pure."""
