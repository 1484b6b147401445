"""Usage and its results: the ledger, its reports, and what slows a job. The functions
are pure."""
