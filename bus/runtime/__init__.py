"""The process runtime: settings, logs, traces, health, retries, signals and a bounded end.

Import the modules you need; this package imports none of them, because a command line should not pay for an exporter.
"""
