"""The three kinds of PATCH."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from gpubus.local.kube.patch import JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, apply_patch
from gpubus.local.kube.status import StatusError

BEFORE: dict[str, Any] = {
    "metadata": {"annotations": {"a": "1", "b": "2"}, "finalizers": ["x"]},
    "status": {"conditions": [{"type": "A", "status": "True", "reason": "r"}, {"type": "B", "status": "True"}]},
    "list": [1, 2],
}


@pytest.mark.parametrize(
    ("kind", "patch", "changed"),
    [
        pytest.param(MERGE_PATCH, {"list": [3]}, {"list": [3]}, id="merge replaces lists"),
        pytest.param(MERGE_PATCH, {"list": None}, {"list": ...}, id="merge removes by null"),
        pytest.param(MERGE_PATCH, {"new": {"x": None, "y": 1}}, {"new": {"y": 1}}, id="no null is ever stored"),
        pytest.param(STRATEGIC_PATCH, {"list": [3]}, {"list": [3]}, id="lists without a key are replaced"),
        pytest.param(
            STRATEGIC_PATCH,
            {"metadata": {"finalizers": ["y", "x"]}},
            {"metadata": {"annotations": {"a": "1", "b": "2"}, "finalizers": ["x", "y"]}},
            id="finalizers are a set",
        ),
        pytest.param(
            STRATEGIC_PATCH,
            {"status": {"conditions": [{"type": "A", "status": "False"}, {"type": "C", "status": "True"}]}},
            {
                "status": {
                    "conditions": [
                        {"type": "A", "status": "False", "reason": "r"},
                        {"type": "B", "status": "True"},
                        {"type": "C", "status": "True"},
                    ]
                }
            },
            id="conditions merge by type",
        ),
        pytest.param(
            STRATEGIC_PATCH,
            {"status": {"conditions": [{"type": "A", "$patch": "delete"}]}},
            {"status": {"conditions": [{"type": "B", "status": "True"}]}},
            id="an element is deleted by directive",
        ),
        pytest.param(
            STRATEGIC_PATCH, {"status": {"$patch": "replace", "x": 1}}, {"status": {"x": 1}}, id="a map is replaced"
        ),
        pytest.param(JSON_PATCH, [{"op": "remove", "path": "/list/0"}], {"list": [2]}, id="remove by index"),
        pytest.param(JSON_PATCH, [{"op": "add", "path": "/list/-", "value": 3}], {"list": [1, 2, 3]}, id="append"),
        pytest.param(JSON_PATCH, [{"op": "add", "path": "/list/0", "value": 0}], {"list": [0, 1, 2]}, id="insert"),
        pytest.param(JSON_PATCH, [{"op": "replace", "path": "/list", "value": []}], {"list": []}, id="replace"),
        pytest.param(JSON_PATCH, [{"op": "test", "path": "/list/1", "value": 2}], {}, id="a test that holds"),
        pytest.param(JSON_PATCH, [{"op": "add", "path": "/a~1b", "value": 1}], {"a/b": 1}, id="escaped slash"),
    ],
)
def test_a_patch_changes_what_it_names_and_nothing_else(kind: str, patch: Any, changed: dict[str, Any]) -> None:
    """Claim: the rest is as before, and so is the object that was patched."""
    before = copy.deepcopy(BEFORE)
    after = apply_patch(kind, before, patch)
    wanted = {key: value for key, value in {**BEFORE, **changed}.items() if value is not ...}
    assert after == wanted
    assert before == BEFORE


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "test", "path": "/list/0", "value": 9},
        {"op": "remove", "path": "/none"},
        {"op": "remove", "path": "/list/7"},
        {"op": "replace", "path": "/none", "value": 1},
        {"op": "add", "path": "/none/deeper", "value": 1},
        {"op": "add", "path": "/list/x", "value": 1},
    ],
)
def test_a_json_patch_that_does_not_fit_is_unprocessable(operation: dict[str, Any]) -> None:
    """Claim: 422, whatever does not fit."""
    with pytest.raises(StatusError) as caught:
        apply_patch(JSON_PATCH, BEFORE, [operation])
    assert caught.value.code == 422


@pytest.mark.parametrize(
    ("kind", "patch", "code"),
    [("text/plain", {}, 415), (MERGE_PATCH, [], 400), (JSON_PATCH, {}, 400)],
)
def test_a_patch_of_the_wrong_form_is_refused(kind: str, patch: Any, code: int) -> None:
    """Claim: unknown types are 415, the wrong shape is 400."""
    with pytest.raises(StatusError) as caught:
        apply_patch(kind, BEFORE, patch)
    assert caught.value.code == code
