"""Engines that provide nodes. `local` provides pretend or real nodes on this machine."""
