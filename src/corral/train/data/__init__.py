"""Training data: which samples a rank reads, and its position, which a save contains."""
