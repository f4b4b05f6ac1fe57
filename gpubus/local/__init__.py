"""Everything on one machine: nats-server, the services, a Kubernetes-shaped API with simulated nodes, a span store."""
