"""Seeded worlds of faults that run control, reconcile, schedule and health unchanged.

`stage` is what every part of a world uses; on it nodes (`machine`, `ranks`, `shims`,
`agent`, `node`), `database`, `heads`; `books` read what they do, and the invariants,
all below `auditor`, ask the books; `people` and `faults` act; `scene` puts one world
together.

`logs` is the other subject: logs of clusters, to replay under one policy or several.
"""
