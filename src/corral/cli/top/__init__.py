"""`corral top`: a live view of nodes, GPUs and jobs in the terminal.

Pure functions decide what is shown (cells, header, nodes, gpus, jobs, listing,
job_page). `feed` sends requests to the head, as rarely as possible. Only `app` and
`canvas` import textual, and the command loads them.
"""
