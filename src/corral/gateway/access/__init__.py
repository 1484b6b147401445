"""Who may call: keys, limits and budgets."""
