"""HTTP on the wire: heads, bodies, answers and events, as the gateway reads and writes
them."""
