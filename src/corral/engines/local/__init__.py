"""The local engine: pretend or real nodes on this machine."""
