"""What a node offers, found out by a helper process."""
