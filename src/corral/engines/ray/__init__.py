"""The Ray engine: an agent on each node of a Ray cluster, which Ray keeps there."""
