"""Processes of this machine, from /proc: who a pid is, since when, and in which container."""
