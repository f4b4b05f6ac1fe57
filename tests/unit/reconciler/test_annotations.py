"""What pods ask for in our own words: every key, its bounds, and what a misspelt one leads to."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler import marks
from reconciler.annotations import ASKING, WRITTEN_BY_US, Words, words


def said(**keys: str) -> Words:
    return words({f"gpubus.dev/{key.replace('_', '-')}": value for key, value in keys.items()}, {})


@pytest.mark.parametrize(
    ("keys", "part", "expected"),
    [
        ({"share_milli": "500"}, "gpu", {"share_milli": 500}),
        ({"share_milli": " 500 "}, "gpu", {"share_milli": 500}),
        ({"card_count": "2", "memory_mib": "1000"}, "gpu", {"cards": 2, "memory_mib": 1000}),
        ({"card_count": "0"}, "gpu", {"cards": 0}),
        ({"memory_milli": "250"}, "gpu", {"memory_milli": 250}),
        ({"models": "A100, H200"}, "gpu", {"models": ("A100", "H200")}),
        ({"nvlink": "require"}, "gpu", {"nvlink": "require"}),
        ({"affinity": "a", "exclusion": "c"}, "locality", {"affinity": "a", "exclusion": "c"}),
        ({"anti_affinity": "b"}, "locality", {"anti_affinity": "b"}),
        ({"gang": "g", "gang_size": "4", "gang_min": "2"}, "gang", {"name": "g", "size": 4, "min": 2}),
        ({"priority": "-5"}, "request", {"priority": -5}),
        ({"priority_class": "high", "expected_s": "60"}, "request", {"priority_class": "high", "expected_s": 60}),
    ],
)
def test_what_is_said_is_read(keys: dict[str, str], part: str, expected: dict[str, object]) -> None:
    found = said(**keys)

    assert getattr(found, part) == expected
    assert found.faults == ()


@pytest.mark.parametrize(
    ("keys", "where", "says"),
    [
        ({"share_mili": "500"}, "gpubus.dev/share-mili", "did you mean gpubus.dev/share-milli?"),
        ({"shares_milli": "500"}, "gpubus.dev/shares-milli", "did you mean gpubus.dev/share-milli?"),
        ({"zzz": "1"}, "gpubus.dev/zzz", "there are affinity, anti-affinity, card-count"),
        ({"cards": "2"}, "gpubus.dev/cards", "written by the platform; how many cards: gpubus.dev/card-count"),
        ({"nonce": "x"}, "gpubus.dev/nonce", "written by the platform"),
        ({"share_milli": "0"}, "gpubus.dev/share-milli", ">= 1"),
        ({"share_milli": "1001"}, "gpubus.dev/share-milli", "<= 1000"),
        ({"share_milli": "half"}, "gpubus.dev/share-milli", "'half' is not a whole number"),
        ({"share_milli": "0.5"}, "gpubus.dev/share-milli", "'0.5' is not a whole number"),
        ({"share_milli": "٥"}, "gpubus.dev/share-milli", "is not a whole number"),
        ({"nvlink": "yes"}, "gpubus.dev/nvlink", "yes"),
        ({"gang": "g"}, "gpubus.dev/gang", "gpubus.dev/gang-size"),
        ({"affinity": "not a tag!"}, "gpubus.dev/affinity", "regex"),
    ],
)
def test_what_cannot_be_is_a_fault_with_its_place(keys: dict[str, str], where: str, says: str) -> None:
    [fault] = said(**keys).faults

    assert fault.where == where
    assert says in fault.text


def test_a_label_says_the_same_as_an_annotation() -> None:
    """Both: they must agree."""
    key = "gpubus.dev/share-milli"

    assert words({}, {key: "500"}).gpu == {"share_milli": 500}
    assert words({key: "500"}, {key: "500"}).faults == ()
    assert [fault.where for fault in words({key: "400"}, {key: "500"}).faults] == [key]


def test_keys_of_others_are_nobodys_business() -> None:
    found = words({"example.com/share-milli": "9", "gpu-fraction": "x"}, {"app": "y", marks.MANAGED: "true"})

    assert found == Words()


def test_no_key_is_both_asked_and_written() -> None:
    """`gpubus.dev/cards` is what a container's environment is read from: a number in it would be a card's index."""
    assert not WRITTEN_BY_US & set(ASKING)


@given(st.dictionaries(st.sampled_from([*ASKING, marks.CARDS, "gpubus.dev/x", "y"]), st.text(max_size=12), max_size=6))
def test_nothing_that_somebody_writes_raises(annotations: dict[str, str]) -> None:
    """And what is out of its bounds is never passed on."""
    found = words(annotations, {})

    assert found.gpu.get("share_milli", 1) in range(1, 1001)
    assert len(found.faults) <= len(annotations) + 1
