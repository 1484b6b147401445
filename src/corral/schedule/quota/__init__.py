"""What each queue and user may hold."""
