"""`python -m monitor`."""

from __future__ import annotations

from bus.runtime.main import service_main
from monitor.settings import MonitorSettings
from monitor.wiring import MonitorService

ABOUT = "Publishes what cards a node has, that it is alive, and what it uses. One per GPU node."

if __name__ == "__main__":
    raise SystemExit(service_main("monitor", MonitorSettings, MonitorService, about=ABOUT))
