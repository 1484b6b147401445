"""Routes of requests, by their model, path or host."""
