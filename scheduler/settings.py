"""What an operator may set of the scheduler; the common groups (nats, telemetry, health, log) come from the runtime."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from msgspec import Meta

from bus.runtime.settings import Seconds, ServiceSettings, Settings, Text
from scheduler import policyfile
from scheduler.core.policies import POLICIES
from scheduler.core.prices.solver import NoSolver, solver_there


class SchedulingSettings(Settings, frozen=True, kw_only=True):
    """How requests are decided."""

    pool: Annotated[str, Meta(pattern=r"^[a-z0-9-]{1,40}$")] = "default"
    """Name of the pool of nodes, and of its ledger subject."""
    policy: Text = "menu-value"
    """Placement policy of requests that name none."""
    policy_file: Text = ""
    """A policy of your own: a Python file (docs/guide/policies.md), loaded at the start. Requests may name it by the
    name of the file, and `policy` may be that name. Empty = none."""
    preemption: Literal["lower", "never"] = "lower"
    """`lower`: requests of the classes `high` and `critical` may take the place of running ones of lower priority, when
    nothing else is free. A request without a class never does, whatever its number."""
    on_eviction: Literal["requeue", "end"] = "requeue"
    """What becomes of a request that had to leave: it waits again under the same uid, or that was its end."""
    suspect_after_s: Seconds = 5.0
    """Silence after which a node takes nothing new: five missed heartbeats. Nothing is freed by it."""
    lease_renew_s: Seconds = 0.4
    """Pause between renewals of the lease that makes one scheduler the active one."""
    lease_duration_s: Seconds = 1.2
    """Silence after which another takes over: three renewals. With the poll, the other decides within 2 s."""
    max_batch: Annotated[int, Meta(ge=1, le=2000)] = 500
    """Inputs that one commit may answer: about 130 KiB of records, decided in some 50 ms."""
    max_inbox: Annotated[int, Meta(ge=100, le=1_000_000)] = 5_000
    """Inputs waiting in memory before reading from the stream pauses; submits beyond it are told to come back."""
    checkpoint_records: Annotated[int, Meta(ge=1000)] = 50_000
    """Records between two checkpoints; a start folds at most about these: some two seconds."""
    explain_every_s: Seconds = 1.0
    """Pause between two rounds of explaining why pending requests are pending; a round is off the decision path."""
    rebuild_timeout_s: Seconds = 60.0
    """How long an empty ledger waits for the reconciler to say what runs in Kubernetes before it says so loudly again.

    It never begins without that answer: beginning with an empty ledger over running pods would sell cards twice.
    """

    def problems(self) -> Iterator[str]:
        """The policy is one of ours; the lease outlives two renewals."""
        names = [*POLICIES, *([policyfile.name_of(self.policy_file)] if self.policy_file else [])]
        if self.policy not in names:
            yield f"policy {self.policy!r} is none of {', '.join(sorted(names))}"
        if self.policy in POLICIES and POLICIES[self.policy].priced and not solver_there():
            yield f"policy {self.policy!r}: {NoSolver()}"
        if self.lease_duration_s < 2 * self.lease_renew_s:
            yield f"lease_duration_s {self.lease_duration_s:g} is less than two lease_renew_s {self.lease_renew_s:g}"


class SchedulerSettings(ServiceSettings, frozen=True, kw_only=True):
    """Settings of `python -m scheduler`."""

    scheduler: SchedulingSettings = SchedulingSettings()
