"""Measured tables: one module a table, each with the floor or peer of the same run."""
