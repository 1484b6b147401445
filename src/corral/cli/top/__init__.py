"""`corral top`: a live view of nodes, GPUs and jobs in the terminal.

What is shown is decided by pure functions (cells, header, nodes, gpus, jobs, listing,
job_page); `feed` asks the head, as rarely as it may; `app` and `canvas` alone know
textual, and are loaded by the command.
"""
