"""corral plan cost: own or rent."""
