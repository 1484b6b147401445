"""Usage of the cluster and reports on it: the ledger, its reports, and what slows a
job. The functions are pure."""
