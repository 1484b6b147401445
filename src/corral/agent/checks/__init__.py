"""Active checks of the node, run by a separate process that ends when work arrives."""
