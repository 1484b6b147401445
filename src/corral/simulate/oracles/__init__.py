"""Independent checks of what the head decides in a simulated world."""
