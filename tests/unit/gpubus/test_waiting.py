"""When is a request as far as somebody waits for?"""

from __future__ import annotations

import pytest

from contracts.outcomes import RequestEvent
from contracts.units import RequestUid
from gpubus.cli.follow import Followed
from gpubus.waiting import GOALS, reached

TABLE = {
    # phase: accepted placed running ended
    "accepted": (True, None, None, None),
    "pending": (True, None, None, None),
    "placed": (True, True, None, None),
    "bound": (True, True, None, None),
    "resized": (True, True, None, None),
    "running": (True, True, True, None),
    "ended": (True, True, True, True),
    "refused": (False, False, False, False),
    "withdrawn": (False, False, False, False),
    "released": (False, False, False, False),
}


def event(phase: str, *, name: str = "n", uid: str = "", request_sequence: int = 0) -> RequestEvent:
    """An event of one request."""
    return RequestEvent(
        namespace="ns",
        name=name,
        phase=phase,
        uid=RequestUid(uid),
        request_sequence=request_sequence,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("phase", TABLE)
def test_each_phase_answers_each_goal(phase: str) -> None:
    """Yes, never, or not yet: the whole table."""
    assert tuple(reached(goal, event(phase)) for goal in GOALS) == TABLE[phase]


def test_events_of_an_earlier_request_of_the_same_name_are_not_ours() -> None:
    """A name may be used again; the uid tells."""
    ours = Followed("n", uid="e-2-0")

    assert [ours.takes(event("ended", uid="e-1-0")), ours.takes(event("placed", uid="e-2-0"))] == [False, True]


def test_a_fired_request_learns_its_uid_from_the_event_that_answers_it() -> None:
    """It knows only where it stands in the stream."""
    ours = Followed("n", request_sequence=7)
    seen = [
        ours.takes(event("accepted", uid="e-1-0", request_sequence=6)),
        ours.takes(event("accepted", uid="e-2-0", request_sequence=7)),
        ours.takes(event("running", uid="e-2-0")),
        ours.takes(event("running", uid="e-1-0")),
    ]

    assert seen == [False, True, True, False]
