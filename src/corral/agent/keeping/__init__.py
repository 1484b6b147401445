"""Memory of the node that stays after the ranks of a job have died."""
