"""Who a Kubernetes token is of, told to nats-server: `python -m reconciler.gatekeeper`.

It stands beside the reconciler because it asks Kubernetes, and is a process of its own because it holds another right:
it reads no pods, and a bus without it lets nobody new in.
"""
