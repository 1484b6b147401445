"""What was used and what came of it: the ledger, its reports, and what slows a job. Pure."""
