"""Commands: parse, one call, print. Heavy imports happen inside the command that needs
them."""
