"""Curves in a terminal: the queries to the head, the rows of the output, and their
drawing."""
