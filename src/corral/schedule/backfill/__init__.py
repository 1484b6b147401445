"""When capacity becomes free, and which starts are promised meanwhile."""
