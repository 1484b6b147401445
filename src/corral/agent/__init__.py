"""The process on a node: probe, make the wanted attempts run and no other, beat, ship
logs."""
