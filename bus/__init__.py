"""The only code that knows NATS: hardened client, streams, ledger, leases, process runtime."""
