"""Does it all add up? The ledger against itself, against Kubernetes and against the monitors."""
