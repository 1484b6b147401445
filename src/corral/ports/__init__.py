"""The seams: what the head needs from outside, as Protocols. Fakes of each live in
simulate."""
