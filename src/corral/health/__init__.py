"""Health of nodes: what a node's signals imply about it. Pure."""
