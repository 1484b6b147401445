"""Usage and its outcome: the ledger, its reports, and what slows a job. Pure."""
