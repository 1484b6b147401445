"""(request, catalog) -> report: what fits, how fast, what to build, buy or rent.
Pure."""
