"""The table of identities as values: spelling, rights, what crosses between accounts, tokens."""

from __future__ import annotations

import nkeys
import pytest

from bus.auth import jwt, keys
from contracts.identities import ROLES, UnknownIdentity, crossings, identity, inbox_prefix, rights
from contracts.subjects import CHANNELS, LEDGER
from reconciler.gatekeeper.judging import NODE_NAME, NotAdmitted, ReviewStatus, UserInfo, identity_of

NOW_S = 1_800_000_000


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("king", "there are scheduler"),
        ("monitor", "monitor/<node>"),
        ("tenant/", "tenant/<namespace>"),
        ("worker/team-a", "worker/<namespace.function>"),
        ("worker/team-a.resize.1", "worker/<namespace.function>"),
        ("scheduler/a", "the form is scheduler"),
        ("tenant/a b", "cannot stand in a subject"),
        ("tenant/*", "cannot stand in a subject"),
        ("", "no role ''"),
    ],
)
def test_what_is_no_identity_is_told_what_one_is(text: str, says: str) -> None:
    with pytest.raises(UnknownIdentity, match=says):
        identity(text)


def test_dots_of_node_names_do_not_split_subjects() -> None:
    assert "gpubus.v1.nodes.gpu-1_lab.heartbeat" in rights(identity("monitor/gpu-1.lab")).publish
    assert inbox_prefix(identity("monitor/gpu-1.lab")) == "_INBOX_monitor_gpu-1_lab"


def test_only_the_scheduler_writes_the_ledger() -> None:
    """And nobody outside CORE can make the server write for it: no consumers for nodes, tenants and viewers."""
    assert [role.name for role in ROLES if LEDGER in role.sends] == ["scheduler"]
    assert [role.name for role in ROLES if role.follows] == ["scheduler", "reconciler", "autoscaler", "operator"]


def test_everything_that_is_sent_has_a_sender_in_the_table() -> None:
    """A channel that nobody may send on is dead, or its role was forgotten."""
    sent = {channel.name for role in ROLES for channel in role.sends}
    assert {channel.name for channel in CHANNELS} == sent


def test_what_a_tenant_takes_from_the_core_holds_no_stream_api() -> None:
    taken = {crossing.subject for crossing in crossings()["CORE", "TENANTS"]}
    assert taken
    assert not any(subject.startswith("$") for subject in taken)


def test_a_worker_takes_from_the_consumer_of_its_own_function_and_from_no_other() -> None:
    """It pulls and settles by name; it makes, looks at and follows nothing."""
    allowed = rights(identity("worker/team-a.resize"))
    api = [subject for subject in allowed.publish if not subject.startswith("gpubus.v1")]
    assert api == [
        "gpubus.js.CONSUMER.MSG.NEXT.GPUBUS_CALLS.team-a_resize",
        "$JS.ACK.GPUBUS_CALLS.team-a_resize.>",
    ]
    assert allowed.subscribe == (
        "_INBOX_worker_team-a_resize.>",
        "gpubus.v1.orders.team-a.resize.*",
    )


ISSUER = keys.account_key()
SERVER = keys.of_seed(nkeys.encode_seed(bytes(range(32)), prefix=nkeys.PREFIX_BYTE_SERVER).decode())


def question(**changes: object) -> str:
    claims = {
        "nats": {
            "user_nkey": "UX",
            "server_id": {"id": SERVER.public},
            "connect_opts": {"auth_token": "t"},
            "client_info": {"host": "h"},
            **changes,
        }
    }
    return jwt.signed(claims, SERVER, now_s=NOW_S)


def test_a_question_of_a_server_is_read() -> None:
    assert jwt.login(question()) == jwt.Login(server=SERVER.public, user="UX", token="t", host="h")


@pytest.mark.parametrize(
    "token",
    [
        "",
        "a.b",
        "a.b.c",
        question()[:-4] + "AAAA",
        question(server_id={"id": "NOTHER"}),
        jwt.signed({"nats": {"server_id": {"id": ISSUER.public}}}, ISSUER, now_s=NOW_S),
    ],
    ids=["empty", "two parts", "no base64", "cut signature", "another server", "not a server's key"],
)
def test_what_no_server_asked_is_not_answered(token: str) -> None:
    with pytest.raises(jwt.BadToken):
        jwt.login(token)


def status(username: str, *, groups: tuple[str, ...] = (), node: str = "", audience: str = "gpubus") -> ReviewStatus:
    user = UserInfo(username=username, groups=groups, extra={NODE_NAME: (node,)} if node else {})
    return ReviewStatus(authenticated=True, user=user, audiences=(audience,))


OURS = "system:serviceaccount:gpubus-system:gpubus-"


@pytest.mark.parametrize(
    ("reviewed", "who"),
    [
        (status(OURS + "scheduler"), "scheduler"),
        (status(OURS + "monitor", node="gpu-1.lab"), "monitor/gpu-1.lab"),
        (status("system:serviceaccount:team-a:default"), "tenant/team-a"),
        (status("system:serviceaccount:team-a:gpubus-scheduler"), "tenant/team-a"),
        (status("system:serviceaccount:team-a:gpubus-worker-resize"), "worker/team-a.resize"),
        (status("system:serviceaccount:team-a:gpubus-worker-"), "tenant/team-a"),
        (status("system:serviceaccount:team-a:gpubus-trainer-bert"), "trainer/team-a.bert"),
        (status("system:serviceaccount:team-a:gpubus-trainer"), "tenant/team-a"),
        (status("ann", groups=("gpubus:operators",)), "operator"),
        (status("bob", groups=("system:authenticated", "gpubus:viewers")), "viewer"),
    ],
)
def test_a_reviewed_token_is_somebody(reviewed: ReviewStatus, who: str) -> None:
    """A tenant's service account of the same name as ours is a tenant."""
    assert identity_of(reviewed, namespace="gpubus-system") == identity(who)


@pytest.mark.parametrize(
    ("reviewed", "why"),
    [
        (ReviewStatus(error="expired"), "expired"),
        (status(OURS + "scheduler", audience="https://kubernetes.default.svc"), "not for 'gpubus'"),
        (status(OURS + "monitor"), "not bound to a pod on a node"),
        (status(OURS + "other"), "has no role"),
        (status("eve"), "none of the groups"),
        (status("system:serviceaccount:team-a:gpubus-worker-a.b"), "the form is worker/<namespace.function>"),
    ],
)
def test_a_token_without_a_place_stays_outside(reviewed: ReviewStatus, why: str) -> None:
    with pytest.raises(NotAdmitted, match=why):
        identity_of(reviewed, namespace="gpubus-system")
