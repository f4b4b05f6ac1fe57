"""A reviewed token as an identity. Pure.

In: what Kubernetes says of a token (`TokenReview.status`), and where our own services run. Out: an identity of the
table, or why not.

    service account of our own namespace, one of ours    its role; a monitor also the node that its token is bound to
    a person in one of the two groups                    operator, viewer
    any other service account                            tenant of its namespace
"""

from __future__ import annotations

import msgspec

from bus.auth.callout import NotAdmitted
from contracts.identities import Identity, UnknownIdentity, identity

AUDIENCE = "gpubus"
"""Tokens are made for us alone: one that was given to the API server opens nothing here, nor the other way round."""

ACCOUNTS = {
    "gpubus-scheduler": "scheduler",
    "gpubus-reconciler": "reconciler",
    "gpubus-autoscaler": "autoscaler",
    "gpubus-monitor": "monitor",
    "gpubus-operator": "operator",
    "gpubus-viewer": "viewer",
}
"""Service accounts of our own namespace."""

GROUPS = {"gpubus:operators": "operator", "gpubus:viewers": "viewer"}
NODE_NAME = "authentication.kubernetes.io/node-name"
"""Where Kubernetes says on which node the pod of a bound token runs (since 1.30)."""

_PREFIX = "system:serviceaccount:"


WORKERS = {"gpubus-worker-": "worker", "gpubus-trainer-": "trainer"}
"""How the service account of a function's workers, or of a job's trainers, begins in their own namespace; then the name
of the function or job."""


class UserInfo(msgspec.Struct, rename="camel"):
    """Whom Kubernetes took the token for."""

    username: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, tuple[str, ...]] = {}


class ReviewStatus(msgspec.Struct, rename="camel"):
    """The answer of a TokenReview."""

    authenticated: bool = False
    user: UserInfo = msgspec.field(default_factory=UserInfo)
    audiences: tuple[str, ...] = ()
    error: str = ""


class Review(msgspec.Struct, rename="camel"):
    """A TokenReview as it comes back."""

    status: ReviewStatus = msgspec.field(default_factory=ReviewStatus)


def identity_of(status: ReviewStatus, *, namespace: str) -> Identity:
    """Whose token it is; `namespace` is where our own services run.

    Raises:
        NotAdmitted: not authenticated, not for our audience, or of nobody with a place in the table.
    """
    if not status.authenticated:
        raise NotAdmitted(f"Kubernetes does not know this token: {status.error or 'no reason given'}")
    if AUDIENCE not in status.audiences:
        raise NotAdmitted(f"the token of {status.user.username} is for {list(status.audiences)}, not for {AUDIENCE!r}")
    try:
        return identity(_text(status.user, namespace))
    except UnknownIdentity as error:
        raise NotAdmitted(str(error)) from None


def _text(user: UserInfo, ours: str) -> str:
    if user.username.startswith(_PREFIX):
        namespace, _, account = user.username.removeprefix(_PREFIX).partition(":")
        return _service(account, user) if namespace == ours else _of_tenant(namespace, account)
    for group, role in GROUPS.items():
        if group in user.groups:
            return role
    raise NotAdmitted(f"{user.username} is in none of the groups {', '.join(GROUPS)}")


def _of_tenant(namespace: str, account: str) -> str:
    """Whoever may use a service account of a namespace is trusted with it: workers get less than the namespace has."""
    for prefix, role in WORKERS.items():
        if name := account.removeprefix(prefix) if account.startswith(prefix) else "":
            return f"{role}/{namespace}.{name}"
    return f"tenant/{namespace}"


def _service(account: str, user: UserInfo) -> str:
    role = ACCOUNTS.get(account)
    if role is None:
        raise NotAdmitted(f"service account {account} has no role; there are {', '.join(ACCOUNTS)}")
    if role != "monitor":
        return role
    nodes = user.extra.get(NODE_NAME, ())
    if len(nodes) != 1:
        raise NotAdmitted(f"the token of {account} is not bound to a pod on a node")
    return f"monitor/{nodes[0]}"
