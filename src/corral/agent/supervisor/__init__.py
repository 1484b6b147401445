"""The agent's side of attempts: launch, stop, adopt and report."""
