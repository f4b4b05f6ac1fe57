"""The autoscaler: stretches shares, adds replicas, keeps warm spares, breathes training jobs. One owner a knob."""
