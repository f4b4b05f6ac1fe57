"""Flags and files to requests: what is sent is what was typed, and nothing else."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest

from contracts.requests import PodRequest
from gpubus import requestfile
from gpubus.cli.requestflags import RequestFlags, tree
from gpubus.cli.words import spelt_out
from gpubus.errors import UsageError
from gpubus.expressions import expression


def decoded(**flags: object) -> PodRequest:
    """The request that flags mean, read as the scheduler reads it."""
    given = {"name": "n", "image": "i:1"} | flags
    return msgspec.json.decode(RequestFlags(**given).wanted().data, type=PodRequest)  # type: ignore[arg-type]


def test_only_what_was_given_is_sent() -> None:
    """Defaults are the scheduler's business: a request by flags holds no field that was not typed."""
    assert tree(RequestFlags(name="n", image="i:1")) == {
        "type": "pod.request.v1",
        "name": "n",
        "pod": {"image": "i:1"},
    }


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("zone=a", {"key": "zone", "operator": "In", "values": ["a"]}),
        ("zone==a", {"key": "zone", "operator": "In", "values": ["a"]}),
        ("zone != a", {"key": "zone", "operator": "NotIn", "values": ["a"]}),
        ("zone in (a, b)", {"key": "zone", "operator": "In", "values": ["a", "b"]}),
        ("zone notin(a,b)", {"key": "zone", "operator": "NotIn", "values": ["a", "b"]}),
        ("zone in ()", {"key": "zone", "operator": "In", "values": []}),
        ("gpu", {"key": "gpu", "operator": "Exists"}),
        ("!gpu", {"key": "gpu", "operator": "DoesNotExist"}),
        ("a.b/generation > 7", {"key": "a.b/generation", "operator": "Gt", "values": ["7"]}),
        ("generation<7", {"key": "generation", "operator": "Lt", "values": ["7"]}),
    ],
)
def test_a_condition_in_one_word(word: str, expected: dict[str, object]) -> None:
    """All forms; what is in it is the scheduler's to judge."""
    assert expression(word) == expected


@pytest.mark.parametrize("word", ["", "zone in a", "in (a)", "zone = = a", "a b", "(a)", "=a", "zone in (a) b"])
def test_what_is_no_condition_names_the_forms(word: str) -> None:
    """A usage error, not a guess."""
    with pytest.raises(UsageError, match=r"--node-affinity .*write KEY=VALUE"):
        tree(RequestFlags(name="n", image="i", node_affinity=(word,)))


def test_constraints_by_flags_reach_their_fields() -> None:
    """All at once, with short names of topologies spelt out."""
    request = tree(
        RequestFlags(
            name="n",
            image="i",
            gpu_memory_share="25%",
            min_card_memory="40Gi",
            nvlink="prefer",
            gang="g:2",
            same_domain="rack",
            node_affinity=("zone=a", "!spot"),
            prefer_node=("fast", "generation>7:20"),
            spread=("zone", "node:3", "rack:prefer"),
            near=("region",),
            apart=("node",),
        )
    )

    assert request["gpu"] == {"memory_milli": 250, "min_card_memory_mib": 40_960, "nvlink": "prefer"}
    assert request["gang"] == {"name": "g", "size": 2, "within": "domain", "topology_key": "rack"}
    assert request["node_affinity"] == {
        "required": [
            {
                "match_expressions": [
                    {"key": "zone", "operator": "In", "values": ["a"]},
                    {"key": "spot", "operator": "DoesNotExist"},
                ]
            }
        ],
        "preferred": [
            {"weight": 1, "term": {"match_expressions": [{"key": "fast", "operator": "Exists"}]}},
            {
                "weight": 20,
                "term": {"match_expressions": [{"key": "generation", "operator": "Gt", "values": ["7"]}]},
            },
        ],
    }
    assert request["topology_spread"] == [
        {"topology_key": "topology.kubernetes.io/zone"},
        {"topology_key": "kubernetes.io/hostname", "max_skew": 3},
        {"topology_key": "rack", "when_unsatisfiable": "ScheduleAnyway"},
    ]
    assert request["pod_affinity"] == {"required": [{"topology_key": "topology.kubernetes.io/region"}]}
    assert request["pod_anti_affinity"] == {"required": [{"topology_key": "kubernetes.io/hostname"}]}


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        ({"spread": ("zone:x",)}, "--spread 'zone:x': write KEY, KEY:SKEW or KEY:prefer"),
        ({"spread": ("",)}, "--spread '': write KEY"),
        ({"prefer_node": ("a:b",)}, "--prefer-node 'a:b': write CONDITION:WEIGHT"),
        ({"same_node": True}, "for the members of a --gang"),
        ({"gang": "g:2", "same_node": True, "same_nvlink": True}, "give one of them"),
    ],
)
def test_constraints_that_have_not_the_form(flags: dict[str, Any], text: str) -> None:
    """Told with the flag and the form."""
    with pytest.raises(UsageError, match=re.escape(text)):
        tree(RequestFlags(name="n", image="i", **flags))


def test_every_flag_reaches_its_field() -> None:
    """All at once."""
    request = decoded(
        command="python train.py --name 'a b'",
        env=("A=1", "B=x=y"),
        cpu_milli=4000,
        memory="16Gi",
        gpus=2,
        gpu_share="0.5",
        gpu_memory="8000Mi",
        model=("T4", "A10"),
        priority=7,
        policy="packing",
        gang="trainers:4",
        affinity="a",
        anti_affinity="b",
        exclusion="c",
        node_selector=("zone=z1",),
        label=("l=1",),
        annotation=("gpubus.dev/simulated-run-s=3",),
        restart="OnFailure",
    )

    assert msgspec.to_builtins(request) == {
        "type": "pod.request.v1",
        "name": "n",
        "pod": {
            "image": "i:1",
            "command": ("python", "train.py", "--name", "a b"),
            "env": ({"name": "A", "value": "1"}, {"name": "B", "value": "x=y"}),
            "cpu_milli": 4000,
            "memory_mib": 16384,
            "labels": {"l": "1"},
            "annotations": {"gpubus.dev/simulated-run-s": "3"},
            "restart_policy": "OnFailure",
        },
        "gpu": {"cards": 2, "share_milli": 500, "memory_mib": 8000, "models": ("T4", "A10")},
        "priority": 7,
        "policy": "packing",
        "gang": {"name": "trainers", "size": 4},
        "locality": {"affinity": "a", "anti_affinity": "b", "exclusion": "c"},
        "node_selector": {"zone": "z1"},
    }


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        ({"gpu_memory": "2000mb"}, "--gpu-memory"),
        ({"gpu_share": "1.5"}, "--gpu-share"),
        ({"memory": "lots"}, "--memory"),
        ({"gang": "trainers"}, "--gang"),
        ({"gang": "trainers:four"}, "--gang"),
        ({"gang": ":4"}, "--gang"),
        ({"env": ("A",)}, "--env"),
        ({"env": ("A=1", "A=2")}, "given twice"),
        ({"label": ("=x",)}, "--label"),
        ({"command": "'open"}, "--command"),
        ({"name": None}, "--name"),
        ({"image": ""}, "--image"),
    ],
)
def test_a_flag_of_the_wrong_form_is_named(flags: dict[str, object], named: str) -> None:
    """Nothing is sent; the error says which flag."""
    with pytest.raises(UsageError) as caught:
        decoded(**flags)

    assert named in str(caught.value)


def test_given_lists_the_flags_that_were_used() -> None:
    """For `a FILE and --gpu-share: give one or the other`."""
    assert RequestFlags(gpu_share="0.5", model=("T4",)).given() == ["--gpu-share", "--model"]


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        (["submit", "--wait"], ["submit", "--wait=running"]),
        (["submit", "--wait", "--fire"], ["submit", "--wait=running", "--fire"]),
        (["submit", "--wait", "placed"], ["submit", "--wait", "placed"]),
        (["submit", "--wait=ended"], ["submit", "--wait=ended"]),
        (["submit", "-n", "x", "--", "a", "--b", "c d"], ["submit", "-n", "x", "--command=a --b 'c d'"]),
        (["submit", "--wait", "--", "placed"], ["submit", "--wait=running", "--command=placed"]),
        (["submit", "-", "--fire"], ["submit", "/dev/stdin", "--fire"]),
        (["submit", "--", "cat", "-"], ["submit", "--command=cat -"]),
        (["explain", "--what-if", "-"], ["explain", "--what-if", "/dev/stdin"]),
        (["get", "--wait"], ["get", "--wait"]),
        ([], []),
    ],
)
def test_conveniences_are_spelt_out(typed: list[str], meant: list[str]) -> None:
    """`--wait` has an optional value, and two dashes begin the container's command; in `submit` only."""
    assert spelt_out(typed) == meant


TOML = """
name = "train"
priority = 3
[pod]
image = "i:1"
[gpu]
share_milli = 500
"""

MANY = """
[[request]]
name = "a"
pod = { image = "i:1" }
[[request]]
name = "b"
pod = { image = "i:1" }
"""


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (TOML, ["train"]),
        (MANY, ["a", "b"]),
        ('{"name": "train", "pod": {"image": "i:1"}}', ["train"]),
        ('[{"name": "a", "pod": {}}, {"name": "b"}]', ["a", "b"]),
        ('\n  [\n{"name": "a"}]', ["a"]),
    ],
)
def test_files_are_json_or_toml_with_one_request_or_many(text: str, names: list[str]) -> None:
    """The form decides, not the file's name."""
    assert [w.name for w in requestfile.read(text, "f")] == names


def test_a_file_is_sent_as_it_is() -> None:
    """Unknown keys are not dropped on the way: the scheduler refuses them with the nearest valid one."""
    (wanted,) = requestfile.read('{"name": "a", "gpu": {"shre_milli": 5}}', "f")

    assert msgspec.json.decode(wanted.data) == {"type": "pod.request.v1", "name": "a", "gpu": {"shre_milli": 5}}


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "[1]", '{"pod": {}}', '{"name": 5}', "name = ", "just words", "# only a comment", '"name"']
)
def test_what_is_no_request_file_is_refused(text: str) -> None:
    """With the name of the file in the error."""
    with pytest.raises(UsageError) as caught:
        requestfile.read(text, "the-file")

    assert "the-file" in str(caught.value)
