"""Where a request may go, by its model, path or host."""
