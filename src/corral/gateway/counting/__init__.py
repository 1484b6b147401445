"""What the gateway counts, and how it reports and keeps it."""
