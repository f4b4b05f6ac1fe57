"""Recorded traces as input for the same services: reading them, compressing their time, drawing what came of it."""
