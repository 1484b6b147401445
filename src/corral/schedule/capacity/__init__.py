"""Free capacity of nodes during one scheduling pass."""
