"""`python -m scheduler`."""

from bus.runtime.main import service_main
from scheduler.service import Scheduler
from scheduler.settings import SchedulerSettings

if __name__ == "__main__":
    raise SystemExit(
        service_main("scheduler", SchedulerSettings, Scheduler, about="Decides which pod gets which slice.")
    )
