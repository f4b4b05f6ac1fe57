"""`python -m reconciler`."""

from bus.runtime.main import service_main
from reconciler.settings import ReconcilerSettings
from reconciler.wiring import ReconcilerService

if __name__ == "__main__":
    raise SystemExit(
        service_main(
            "reconciler", ReconcilerSettings, ReconcilerService, about="Makes Kubernetes agree with the ledger."
        )
    )
