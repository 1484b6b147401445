"""Other systems, brought up on this machine, measured in the same run as Corral."""
