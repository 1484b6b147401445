"""Engines that lend nodes. `local`: pretend or real nodes on this machine."""
