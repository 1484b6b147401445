"""The planner: from a request and the catalog it makes a report on what fits, how fast
it runs, and what to build, buy or rent. The functions are pure."""
