"""Images: the node's own tools fetch and unpack them, and the shim itself enters them."""
