"""The agent, a process on each node: it probes the node, runs exactly the attempts that
the head wants there, sends heartbeats and ships logs."""
