"""`kind: ray`: a program on a Ray cluster that the nodes of its attempt make, and nobody else's.

All but `outfit` travels to the job's own Python, which has no Corral: standard library only.
"""
