"""`python -m reconciler.gatekeeper`."""

from bus.runtime.main import service_main
from reconciler.gatekeeper.wiring import GatekeeperService, GatekeeperSettings

if __name__ == "__main__":
    raise SystemExit(
        service_main(
            "gatekeeper",
            GatekeeperSettings,
            GatekeeperService,
            about="Lets Kubernetes service accounts onto the bus, each with the rights of its role.",
        )
    )
