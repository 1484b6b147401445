"""The Ray engine: an agent on each node of a Ray cluster, kept running by a Ray actor."""
