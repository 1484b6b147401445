"""The processes of a gateway, their sockets and certificates."""
