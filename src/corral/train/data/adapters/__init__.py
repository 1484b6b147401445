"""Positions of other libraries' loaders, which a save contains."""
