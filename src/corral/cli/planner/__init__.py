"""The commands corral plan: what fits, how fast it runs, what to build, buy or rent."""
