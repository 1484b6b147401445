"""`kind: ray`: a program on a Ray cluster that only the nodes of its attempt form.

All modules except `outfit` travel to the job's own Python, which has no Corral. They
use only the standard library.
"""
