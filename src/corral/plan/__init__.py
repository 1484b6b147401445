"""The planner: it takes a request and the catalog, and returns a report on what fits,
how fast it runs, and what to build, buy or rent. The functions are pure."""
