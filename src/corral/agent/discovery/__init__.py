"""Discovery of the resources that a node offers, in a helper process."""
