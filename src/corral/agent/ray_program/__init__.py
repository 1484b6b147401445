"""`kind: ray`: a program on a Ray cluster that is formed only by the nodes of its
attempt.

All modules except `launch_files` are copied to the job's own Python, which has no
Corral, so they use only the standard library.
"""
