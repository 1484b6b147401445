"""Images for ranks: the node's own tools (such as podman) fetch and unpack them, and
the shim itself enters them."""
