"""What a row knows of who lives on its node."""

from __future__ import annotations

from struct import pack

from contracts.units import RequestUid
from scheduler.core.arrays.tenants import LONG, Tenants
from scheduler.core.menu.drain import LN_NEVER, psi


def test_a_node_full_of_pods_that_never_end_still_fits_a_row() -> None:
    """Claim: 300 x 2^24 is more than 32 bits hold; each is cut where psi is zero already."""
    tenants, uids = Tenants(), [RequestUid(f"e-1-{number}") for number in range(300)]
    tenants.learn(lambda _: LN_NEVER, {})
    for uid in uids:
        tenants.expect(uid, "100|1|500|")
    assert pack("i", tenants.minus_ln(uids, {}))
    assert tenants.minus_ln(uids[:2], {}) == 2 * LONG
    assert (psi(LONG), psi(2 * LN_NEVER)) == (0, 0)
    assert tenants.sums([uids[:2], [], uids[:1]], {}, lambda _: LN_NEVER).tolist() == [2 * LONG, 0, LONG]
