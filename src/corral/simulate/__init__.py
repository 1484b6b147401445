"""Simulated worlds with seeded faults, which run control, reconcile, schedule and
health unchanged.

`stage` holds what every part of a world uses. On it run the nodes (`machine`, `ranks`,
`shims`, `agent`, `node`), the `database` and the `heads`. `books` record what they do,
and the invariants, all below `auditor`, query the books. `people` and `faults` act, and
`scene` assembles one world. Worlds from seed 1,000,000 on have `services`.

`logs` is a separate subject: logs of clusters, which are replayed under one policy or
several.
"""
