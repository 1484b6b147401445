"""What the sensors of a node say, read in a helper process, and what the node notices of itself."""
