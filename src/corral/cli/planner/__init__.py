"""corral plan: what fits, how fast, what to build, buy or rent."""
