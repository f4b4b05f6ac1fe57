"""`python -m autoscaler`."""

from autoscaler.settings import AutoscalerSettings
from autoscaler.wiring import AutoscalerService
from bus.runtime.main import service_main

if __name__ == "__main__":
    raise SystemExit(
        service_main(
            "autoscaler",
            AutoscalerSettings,
            AutoscalerService,
            about="Keeps functions and training jobs at the size that their load needs.",
        )
    )
