"""The fast scheduler of replays: one pass over the queue, with jobs and state as flat
columns.

It decides as `schedule.decide` does, as far as it has the same information, at 50,000
jobs a second. Only `replay` uses it (decisions 0013, 0017). What the live decision also
needs is in the parent package: `cluster`, `seat`, `fragment`, `compiled`.
"""
