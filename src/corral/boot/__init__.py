"""Settings and wiring: the only room that builds stores, engines and clocks."""
