"""The order in which waiting gangs are tried."""
