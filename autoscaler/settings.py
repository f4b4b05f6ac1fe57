"""What an operator may set of the autoscaler; the common groups (nats, telemetry, health, log) are the runtime's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from msgspec import Meta

from autoscaler.jobs import JobSettings
from autoscaler.vertical import VerticalSettings
from bus.runtime.settings import Seconds, ServiceSettings, Settings, Text


class AutoscalingSettings(Settings, frozen=True, kw_only=True):
    """How functions and jobs are kept at the size that they should have."""

    pool: Annotated[str, Meta(pattern=r"^[a-z0-9-]{1,40}$")] = "default"
    """Name of the pool whose ledger is followed."""
    look_s: Seconds = 0.25
    """Pause between two looks at a function that serves, each one question to the bus: a burst of ten times what is
    carried shows in the short window after 0.85 s, and is decided about within 1.2."""
    asleep_s: Seconds = 5.0
    """The same for a function at zero: its first call wakes it, this is for a word that was lost."""
    report_fresh_s: Seconds = 5.0
    """Silence after which a worker serves nothing: five of its reports."""
    ack_wait_s: Annotated[float, Meta(ge=1, le=600)] = 5.0
    """A call whose worker says nothing for so long goes to another one. Workers speak every second."""
    pending_s: Seconds = 3.0
    """A replica that waits for a card for so long is taken back: somebody else got the card."""
    lease_renew_s: Seconds = 0.4
    """Pause between renewals of the lease that makes one autoscaler the active one."""
    lease_duration_s: Seconds = 1.2
    """Silence after which another takes over. Two active ones ask for the same replicas by the same names."""
    worker_nats_url: Text = ""
    """Where workers and trainers find the bus, for `WORKER_NATS_URLS` of their pods. Empty: the images know."""

    jobs: JobSettings = JobSettings()
    vertical: VerticalSettings = VerticalSettings()

    def problems(self) -> Iterator[str]:
        """The lease outlives two renewals."""
        if self.lease_duration_s < 2 * self.lease_renew_s:
            yield f"lease_duration_s {self.lease_duration_s:g} is less than two lease_renew_s {self.lease_renew_s:g}"


class AutoscalerSettings(ServiceSettings, frozen=True, kw_only=True):
    """Settings of `python -m autoscaler`."""

    autoscaler: AutoscalingSettings = AutoscalingSettings()
