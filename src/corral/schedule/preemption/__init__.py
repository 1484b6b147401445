"""Which running gangs stop or move for a waiting one, and by what right."""
