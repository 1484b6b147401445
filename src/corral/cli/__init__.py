"""Commands of the command line. Each parses its arguments, makes one call and prints
the answer; heavy imports happen inside the command that needs them."""
