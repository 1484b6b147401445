"""What lends nodes. `local`: pretend or real nodes on this machine."""
