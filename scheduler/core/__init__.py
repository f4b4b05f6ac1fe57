"""The pure core of the scheduler: states and requests in, placements and reasons out. No I/O, clock or randomness."""
