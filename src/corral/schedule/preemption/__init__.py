"""Preemption and relocation of running gangs for a waiting one, and the rights to
them."""
