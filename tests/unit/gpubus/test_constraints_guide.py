"""docs/guide/constraints.md: every example in it is run against the core, and answers what the page says."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from cyclopts import App

from contracts.requests import GpuAsk, PodRequest
from gpubus import requestfile
from gpubus.cli.requestflags import RequestFlags
from gpubus.render.words import ask, mib
from scheduler.admission import Admitted, Refused, admit
from scheduler.core.decide import Unplaced
from scheduler.core.explain import what_if
from scheduler.core.gang import place_gang
from scheduler.core.policies import POLICIES
from tests.builders.ledger import Cluster, cluster, node, request

PAGE = Path(__file__).parents[3] / "docs/guide/constraints.md"
NO_FLAGS = RequestFlags()
ZONE = "topology.kubernetes.io/zone"
EXAMPLE = re.compile(r"```sh\n(gpubus submit .*?)\n```\n\n```text\n(.*?)\n```", re.DOTALL)


def page_cluster() -> Cluster:
    """The cluster that the page describes at its head."""
    a1, a2, b1 = node("a-1"), node("a-2"), node("b-1")
    for group in (0, 0, 1, 1):
        a1.gpus(1, memory_mib=81_920, model="A100", nvlink_group=group)
    a2.gpus(2, memory_mib=16_384, model="T4")
    b1.gpus(2, memory_mib=81_920, model="A100")
    a1.facts(labels={ZONE: "a", "generation": "8"})
    a2.facts(labels={ZONE: "a", "generation": "7"})
    b1.facts(labels={ZONE: "b", "generation": "8"})
    drawn = cluster(a1, a2, b1)
    drawn.hold(request("cache-1").share(500).gpu_memory(8_192).labels(app="cache"), "a-2", 0)
    drawn.hold(request("web-1").share(250).gpu_memory(20_480).labels(app="web"), "a-1", 0)
    drawn.hold(request("train-1").gpu_memory(81_920), "b-1", 0)
    return drawn


def asked(command: str) -> bytes:
    """What a command line sends."""
    words = shlex.split(command.replace("\\\n", " "))[2:]
    found: bytes = reader([*words, "--image", "busybox"], exit_on_error=False, print_error=False)
    return found


reader = App(result_action="return_value")


@reader.default
def read(*, flags: RequestFlags = NO_FLAGS) -> bytes:
    """The flags of `gpubus submit`, by themselves."""
    return flags.wanted().data


def answer(data: bytes) -> str:
    """Where it goes, or why nowhere, in the words of `gpubus explain`."""
    verdict = admit(data)
    if isinstance(verdict, Refused):
        return "\n".join(f"refused: {refusal.text}" for refusal in verdict.refusals)
    assert isinstance(verdict, Admitted)
    assert isinstance(verdict.message, PodRequest)
    found = what_if(page_cluster().state, "default", verdict.message, default_policy="packing")
    if found.placement is not None:
        cards = ", ".join(f"{p.card} {p.share_milli}/1000 {p.memory_mib} MiB" for p in found.placement.slices)
        return f"where: {found.placement.node}: {cards}"
    lines = [f"because: {reason.text}" for reason in found.reasons]
    return "\n".join([*lines, *([f"nearest: {found.nearest.text}"] if found.nearest else [])])


def gang_answer(text: str) -> str:
    """Where its members go together, or why nowhere."""
    drawn = page_cluster()
    members = []
    for wanted in requestfile.read(text, "gang.toml"):
        verdict = admit(wanted.data)
        assert isinstance(verdict, Admitted)
        assert isinstance(verdict.message, PodRequest)
        members.append(drawn.accept(verdict.message))
    found = place_gang(drawn.state, members, POLICIES["packing"])
    if isinstance(found, Unplaced):
        return "\n".join(f"because: {reason.text}" for reason in found.reasons)
    return "\n".join(
        f"where: {placed.placement.node}: {', '.join(piece.card for piece in placed.placement.slices)}"
        for placed in found
    )


GANG = re.compile(r"```toml\n(.*?)\n```\n\n```text\n(.*?)\n```", re.DOTALL)
GANGS = GANG.findall(PAGE.read_text(encoding="utf-8"))
EXAMPLES = EXAMPLE.findall(PAGE.read_text(encoding="utf-8"))


def test_what_is_asked_of_a_card_is_told_in_words() -> None:
    """As `gpubus explain` begins: nothing of it is left out."""
    gpu = GpuAsk(cards=2, share_milli=500, memory_milli=250, min_card_memory_mib=40_960, nvlink="require")
    told = ask(gpu)

    assert told.startswith("2 cards, each ")
    assert "250/1000 of its memory" in told
    assert told.endswith(f", of at least {mib(40_960)}, linked by NVLink")


def test_the_page_has_examples() -> None:
    """The pattern that finds them finds them."""
    assert len(EXAMPLES) > 15
    assert len(GANGS) == 2


@pytest.mark.parametrize(("command", "told"), EXAMPLES, ids=[re.sub(r"\W+", " ", c)[14:60] for c, _ in EXAMPLES])
def test_an_example_answers_what_the_page_says(command: str, told: str) -> None:
    """Word by word."""
    assert answer(asked(command)) == told


@pytest.mark.parametrize(("file", "told"), GANGS, ids=["fits", "does not fit"])
def test_a_gang_of_the_page_answers_what_the_page_says(file: str, told: str) -> None:
    """Word by word."""
    assert gang_answer(file) == told
