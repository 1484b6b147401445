"""Active checks of the node, run by a separate process that is killed when an attempt
is to start."""
