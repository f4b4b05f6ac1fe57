"""Recorded traces: through the same services in compressed time (`replay`), or against the placement code alone."""
