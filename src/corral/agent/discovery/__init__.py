"""Discovery of what a node offers, in a helper process."""
