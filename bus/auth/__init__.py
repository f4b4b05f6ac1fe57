"""Identities on the bus: keys, the server's configuration for them, and logging in with a Kubernetes token."""
