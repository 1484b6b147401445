"""The agent of one attempt, brought to a lent node by a batch step or a pod."""
