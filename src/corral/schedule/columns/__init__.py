"""The fast path of replays: one pass over a whole log's queue, jobs and state as flat
columns.

It decides as `schedule.decide` does where it knows enough to, 50,000 jobs a second;
`replay` alone drives it (decisions 0013, 0017). What the live decision needs too lies
one room up: `cluster`, `seat`, `fragment`, `compiled`.
"""
