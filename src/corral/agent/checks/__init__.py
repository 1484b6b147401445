"""Active checks of the node: done by a process beside the agent, which ends when work comes."""
