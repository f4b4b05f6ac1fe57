"""Workload files, `scale` of a training job, and how jobs are shown."""

from __future__ import annotations

from typing import Any

import pytest
from rich.console import Console

from contracts.functions import FunctionStatus, MissingCards
from contracts.requests import GpuAsk, PodTemplate
from contracts.workloads import Function, Job, JobStatus, Profile, ScaleRecord, Scaling
from gpubus.cli.requestflags import RequestFlags
from gpubus.cli.scale import Meant, breathing
from gpubus.errors import UsageError
from gpubus.render import scaling
from gpubus.workloadfile import read
from gpubus.workloads import JobView

POD = PodTemplate(image="x:1")
TOML = """
[[function]]
name = "resize"
max_replicas = 8
pod.image = "x:1"
gpu.share_milli = 250
scaling.concurrency = 4

[job]
name = "bert"
pod = {image = "x:1"}
max_trainers = 4
"""
RESIZE = Function(
    name="resize", pod=POD, gpu=GpuAsk(share_milli=250), max_replicas=8, scaling=Scaling(concurrency=4)
)  # fmt: skip
BERT = Job(name="bert", pod=POD, max_trainers=4)


def test_a_file_holds_functions_and_jobs() -> None:
    """By table, by type, or by what it says."""
    assert read(TOML, "f") == [RESIZE, BERT]
    assert read('{"type":"workload.job.v1","name":"bert","pod":{"image":"x:1"},"max_trainers":4}', "f") == [BERT]
    assert read('[{"name":"bert","pod":{"image":"x:1"},"max_trainers":4}]', "f") == [BERT]
    assert read('{"name":"f","pod":{"image":"x:1"}}', "f") == [Function(name="f", pod=POD)]
    assert read('name = "f"\npod.image = "x:1"', "f") == [Function(name="f", pod=POD)]


WRONG = [
    ("", "f: is empty"),
    ("[]", "holds no workload"),
    ("[ 1]", "f, workload 1: a workload is a table of fields, not int"),
    ('{"name":"f","pod":{"image":"x:1"},"replica":1}', "replica: no field of a function"),
    ('{"name":"f","pod":{"image":"x:1"},"scaling":{"concurency":4}}', "scaling.concurency: no field of a function"),
    (
        '{"name":"f","pod":{"image":"x:1","env":[{"name":"A"},{"name":"B","val":""}]}}',
        "pod.env.1.val: no field of a function",
    ),
    ('{"name":"f","pod":{"image":"x:1"},"max_replicas":-1}', "max_replicas"),
    ('{"name":"f","pod":{}}', "image"),
    ('{"type":"pod.request.v1","name":"f"}', "one of workload.function.v1, workload.job.v1"),
    ('{"name":"j","pod":{"image":"x"},"min_trainers":3,"max_trainers":2}', "min_trainers 3: at most max_trainers, 2"),
    ("[job]\nname = 1\npod.image = 'x'", "name"),
    ("= 1", "neither JSON nor TOML"),
]


@pytest.mark.parametrize(("text", "words"), WRONG)
def test_what_is_wrong_is_told_before_anything_is_published(text: str, words: str) -> None:
    """Field, value, bound, and which of the file's workloads it is."""
    with pytest.raises(UsageError, match=words):
        read(text, "f")


def meant(given: dict[str, Any], *, pause: bool | None = None, **flags: Any) -> Meant:
    return Meant(flags=RequestFlags(name="bert", **flags), given=given, pause=pause)


def test_a_jobs_bounds_are_changed_and_the_rest_stays() -> None:
    """--min and --max are trainers; --pause stands until --resume."""
    found = breathing(BERT, meant({"min_replicas": 2, "max_replicas": 6}, pause=True))

    assert found == Job(name="bert", pod=POD, min_trainers=2, max_trainers=6, paused=True)
    assert breathing(found, meant({"max_replicas": 7})).paused
    assert not breathing(found, meant({}, pause=False)).paused


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (meant({"replicas": 3}), "bert is a training job: --min, --max, --pause and --resume change it"),
        (meant({"warm_replicas": 3}), "is a training job"),
        (meant({}, gpu_share="0.5"), "is a training job"),
        (meant({"min_replicas": 5}), "min_trainers 5: at most max_trainers, 4"),
        (meant({"min_replicas": 0}), "min_trainers"),
    ],
)
def test_what_a_job_cannot_be_is_told(asked: Meant, words: str) -> None:
    """Flags that are for functions, and bounds that contradict each other."""
    with pytest.raises(UsageError, match=words):
        breathing(BERT, asked)


def test_how_a_workload_stands_is_told_with_what_it_lacks() -> None:
    """A function with what was measured, a job with its reason; nothing where nobody has said."""
    missing = MissingCards(replicas=1, cards=2, share_milli=500, reason="no card is free")
    rows = (Profile(model="A100", share_milli=250, rate_milli=28_500),)
    function = FunctionStatus(target=3, ready=2, waiting=None, outstanding=2, missing=missing, profiles=rows)
    job = JobStatus(namespace="ns", name="bert", phase="running", reason="all trainers are running", failed=1)

    assert [line.plain for line in scaling.standing(function)] == [
        "now       2 ready, 0 starting, 0 warm, 0 draining, ? calls wait, 2 calls run",
        "missing   2 x 500/1000: no card is free",
        "measured  28.5 calls/s on 250/1000 of A100",
    ]
    assert [line.plain for line in scaling.standing(job)] == [
        "now       running: all trainers are running; 1 failed, 0 finished"
    ]
    assert list(scaling.standing(None)) == []


def test_jobs_are_shown_with_their_last_change() -> None:
    """What is not known is no zero."""
    status = JobStatus(
        namespace="ns",
        name="bert",
        phase="scaling",
        target=3,
        running=2,
        waiting=1,
        history=(ScaleRecord(at_ms=1, generation=2, before=2, after=3, rule="room"),),
    )
    rows = [JobView(namespace="ns", job=BERT, status=status), JobView(namespace="ns", job=BERT)]
    console = Console(width=200)
    with console.capture() as captured:
        console.print(scaling.jobs(rows, wide=True))
    lines = [line.split() for line in captured.get().splitlines()]

    assert lines[1][2:] == ["scaling", "3", "2", "1", "1..4", "0", "2", "->", "3", "room", "x:1"]
    assert lines[2][2:] == ["?", "?", "?", "?", "1..4", "?", "?", "x:1"]
