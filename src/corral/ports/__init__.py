"""Interfaces (Protocols) of what the head needs from outside. Fakes of each are in
simulate."""
