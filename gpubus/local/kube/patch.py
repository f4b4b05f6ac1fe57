"""The three kinds of PATCH, as functions of values: the object before and the patch in, the object after out.

Nothing is changed in place; subtrees that a patch does not touch are shared between before and after.
"""

from __future__ import annotations

from typing import Any

from gpubus.local.kube.status import StatusError, bad_request

__all__ = ["JSON_PATCH", "MERGE_PATCH", "STRATEGIC_PATCH", "apply_patch"]

MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"

# Lists that the strategic patch merges, by the key that names their elements; every other list is replaced
# whole.
_MERGE_KEYS = {
    "addresses": "type",
    "conditions": "type",
    "containers": "name",
    "env": "name",
    "hostIPs": "ip",
    "initContainers": "name",
    "ownerReferences": "uid",
    "podIPs": "ip",
    "ports": "containerPort",
    "schedulingGates": "name",
    "volumeMounts": "mountPath",
    "volumes": "name",
}
_SET_LISTS = frozenset({"finalizers"})


def apply_patch(kind: str, before: dict[str, Any], patch: Any) -> dict[str, Any]:
    """The object after a patch of this content type; StatusError 415 for a type that is not served."""
    if kind == JSON_PATCH:
        if not isinstance(patch, list):
            raise bad_request("a JSON patch is a list of operations")
        return _json_patch(before, patch)
    if kind not in {MERGE_PATCH, STRATEGIC_PATCH}:
        message = (
            "the body of the request was in an unknown format - accepted media types include: "
            f"{JSON_PATCH}, {MERGE_PATCH}, {STRATEGIC_PATCH}"
        )
        raise StatusError(415, "UnsupportedMediaType", message)
    if not isinstance(patch, dict):
        raise bad_request("a merge patch is an object")
    after: dict[str, Any] = _merge(before, patch) if kind == MERGE_PATCH else _strategic(before, patch)
    return after


def _merge(before: Any, patch: Any) -> Any:
    """RFC 7386: null removes, objects merge, everything else replaces."""
    if not isinstance(patch, dict):
        return patch
    after = dict(before) if isinstance(before, dict) else {}
    for key, value in patch.items():
        if value is None:
            after.pop(key, None)
        else:
            after[key] = _merge(after.get(key), value)
    return after


def _strategic(before: Any, patch: dict[str, Any]) -> dict[str, Any]:
    if patch.get("$patch") == "replace":
        return {key: value for key, value in patch.items() if key != "$patch"}
    after = dict(before) if isinstance(before, dict) else {}
    for key, value in patch.items():
        if key.startswith("$"):
            continue  # ordering hints of kubectl
        if value is None:
            after.pop(key, None)
        elif isinstance(value, dict):
            after[key] = _strategic(after.get(key), value)
        elif isinstance(value, list) and (merge_key := _MERGE_KEYS.get(key)):
            after[key] = _strategic_list(after.get(key) or [], value, merge_key)
        elif isinstance(value, list) and key in _SET_LISTS:
            after[key] = list(dict.fromkeys([*(after.get(key) or []), *value]))
        else:
            after[key] = value
    return after


def _strategic_list(before: list[Any], patch: list[Any], merge_key: str) -> list[Any]:
    if any(item.get("$patch") == "replace" for item in patch):
        return [item for item in patch if "$patch" not in item]
    after = {item[merge_key]: item for item in before}
    for item in patch:
        if merge_key not in item:
            raise bad_request(f"map does not contain declared merge key: {merge_key}")
        if item.get("$patch") == "delete":
            after.pop(item[merge_key], None)
        else:
            after[item[merge_key]] = _strategic(after.get(item[merge_key]), item)
    return list(after.values())


def _json_patch(before: dict[str, Any], operations: list[dict[str, Any]]) -> dict[str, Any]:
    after: Any = before
    for operation in operations:
        path = [part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:]]
        after = _operate(after, path, operation)
    if not isinstance(after, dict):
        raise bad_request("the patched document is not an object")
    return after


def _operate(node: Any, path: list[str], operation: dict[str, Any]) -> Any:
    """One RFC 6902 operation (test, add, replace, remove), rebuilding the spine down to where it acts."""
    op = operation["op"]
    if not path:
        if op == "test" and node != operation.get("value"):
            raise _refused()
        return node if op == "test" else operation.get("value")
    if isinstance(node, list):
        return _operate_list(node, path, operation)
    if not isinstance(node, dict):
        raise _refused()
    key, rest = path[0], path[1:]
    if key not in node and (rest or op in {"remove", "replace"}):
        raise _refused()
    if op == "remove" and not rest:
        return {k: v for k, v in node.items() if k != key}
    return _changed(node, key, _operate(node.get(key), rest, operation), op)


def _operate_list(node: list[Any], path: list[str], operation: dict[str, Any]) -> list[Any]:
    key, rest, op = path[0], path[1:], operation["op"]
    index = len(node) if key == "-" else int(key) if key.isdigit() else -1
    if not 0 <= index <= len(node) or (index == len(node) and (rest or op != "add")):
        raise _refused()
    if op == "add" and not rest:
        return [*node[:index], operation.get("value"), *node[index:]]
    if op == "remove" and not rest:
        return [*node[:index], *node[index + 1 :]]
    return [*node[:index], _operate(node[index], rest, operation), *node[index + 1 :]]


def _changed(node: dict[str, Any], key: str, value: Any, op: str) -> dict[str, Any]:
    return node if op == "test" else {**node, key: value}


def _refused() -> StatusError:
    """A failed `test` and a missing path look the same to the client: 422 without a cause."""
    message = "the server rejected our request due to an error in our request"
    return StatusError(422, "Invalid", message, {})
