"""Commands of the command line. Each command parses its arguments, makes one call to
the head and prints the answer. Heavy imports happen inside the command that needs them.
"""
