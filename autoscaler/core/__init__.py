"""Scaling decisions as functions of values: no clock, no randomness, no I/O."""
