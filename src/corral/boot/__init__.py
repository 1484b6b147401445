"""Settings and wiring. Only this package creates stores, engines and clocks."""
