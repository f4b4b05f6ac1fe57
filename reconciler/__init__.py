"""Makes Kubernetes agree with the ledger, and publishes what it sees there. The only holder of Kubernetes credentials.

    ledger ──▶ service ──▶ queue ──▶ worker ──▶ calls ──▶ Kubernetes
                             ▲         │ plan               │
                             │         ▼                    │ list, watch
                          informer ◀── store ◀──────────────┘
                             │
                             └──▶ board ──▶ outcomes, node facts, node shares

Pure: objects, quantity, errors, marks, seen, plan, podspec, facts, shares, rebuild, store. The rest is a thin shell.
"""
