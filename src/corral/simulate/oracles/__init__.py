"""Independent checks of the head's decisions in a simulated world."""
