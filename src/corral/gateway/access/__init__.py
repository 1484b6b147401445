"""Rights of callers: keys, limits and budgets."""
