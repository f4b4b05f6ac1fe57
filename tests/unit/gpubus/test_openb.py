"""Reading the openb format: as its publishers read it, strictly, with line and column in every error."""

from __future__ import annotations

import pytest

from contracts.requests import GpuAsk
from gpubus.errors import UsageError
from gpubus.simulate import openb

HEAD = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
SHORT = "name,cpu_milli,memory_mib,num_gpu,gpu_milli\n"


def one(line: str, head: str = HEAD) -> openb.PodRow:
    """The only row."""
    (row,) = openb.pods(head + line + "\n", "f.csv")
    return row


@pytest.mark.parametrize(
    ("line", "fields"),
    [
        ("a,12000,16384,1,1000,,LS,Running,0,500,0", {"cards": 1, "share_milli": 1000, "life_s": 500.0}),
        ("a,6000,12288,1,460,,LS,Running,10,100,20", {"share_milli": 460, "created_s": 10.0, "life_s": 80.0}),
        ("a,6000,12288,1,460,,LS,Pending,10,100,", {"life_s": 90.0}),  # never scheduled: from its creation
        ("a,6000,12288,1,460,,LS,Running,10,,", {"life_s": None}),
        ("a,0,12288,1,460,,,,,,", {"cpu_milli": 100, "created_s": 0.0}),
        ("a,6000,12288,0,1000,,,,,,", {"cards": 0, "share_milli": 0}),  # a share without a card is nothing
        ("a,6000,12288,1,1460,,,,,,", {"share_milli": 1000}),
        ("a,6000,12288,8,1000,V100M16|V100M32,,,,,", {"cards": 8, "models": ("V100M16", "V100M32")}),
        ("a,6000,12288,1,460,,,Running,10,5,10", {"life_s": 0.0}),  # ended before it began
    ],
)
def test_a_row_is_read_as_the_publishers_read_it(line: str, fields: dict[str, object]) -> None:
    """Edge rows of the trace and its variants."""
    row = one(line)

    assert {name: getattr(row, name) for name in fields} == fields


def test_variants_leave_columns_out() -> None:
    """`multigpu*` have five columns: no times, no models."""
    row = one("openb-pod-0000,12000,16384,2,1000", SHORT)

    assert (row.demand_milli, row.models, row.life_s) == (2000, (), None)


@pytest.mark.parametrize(
    ("line", "column"),
    [
        ("a,x,1,1,1000", "cpu_milli"),
        ("a,1,1.5,1,1000", "memory_mib"),
        ("a,1,-1,1,1000", "memory_mib"),
        ("a,1,1,1,0", "gpu_milli"),
        ("a,1,1,one,1000", "num_gpu"),
        ("A_b,1,1,1,1000", "name"),
        (",1,1,1,1000", "name"),
        ("a,nan,1,1,1000", "cpu_milli"),
        ("a,1e9,1,1,1000", "cpu_milli"),
    ],
)
def test_a_value_that_is_none_is_refused_with_line_and_column(line: str, column: str) -> None:
    """Never read as 0."""
    with pytest.raises(UsageError) as caught:
        openb.pods(SHORT + "ok,1,1,1,1000\n" + line + "\n", "f.csv")

    assert "f.csv line 3: " + column in str(caught.value)


def test_a_file_without_a_needed_column_and_a_name_that_stands_twice_are_refused() -> None:
    """Before anything is sent."""
    with pytest.raises(UsageError, match="no column gpu_milli"):
        openb.pods("name,cpu_milli,memory_mib,num_gpu\n", "f.csv")
    with pytest.raises(UsageError, match="a stands there twice"):
        openb.pods(SHORT + "a,1,1,1,1000\na,1,1,1,1000\n", "f.csv")


def test_pods_come_in_order_of_creation_and_can_be_limited() -> None:
    """Equal times in file order."""
    text = HEAD + "".join(f"{name},1,1,1,500,,,,{at},,\n" for name, at in (("c", 9), ("a", 3), ("b", 3)))

    assert [row.name for row in openb.pods(text, "f")] == ["a", "b", "c"]
    assert [row.name for row in openb.pods(text, "f", limit=1)] == ["a"]


def test_a_pod_becomes_a_request_that_says_how_long_it_runs() -> None:
    """It sleeps for its life, which simulated kubelets understand; models become allowed models."""
    request = one("a,6000,12288,1,460,T4|A10,,,10,100,20").request(policy="packing")

    assert request.gpu == GpuAsk(cards=1, share_milli=460, models=("T4", "A10"))
    assert request.pod.command == ("sleep", "80.000")
    assert (request.pod.cpu_milli, request.pod.memory_mib, request.policy) == (6000, 12288, "packing")


NODES = "sn,cpu_milli,memory_mib,gpu,model\n"


def test_nodes_without_cards_are_left_out_and_undisclosed_models_have_a_size() -> None:
    """The memory of a card is not in the trace; pods ask by share."""
    specs = openb.nodes(NODES + "n0,32000,262144,0,\nn1,64000,262144,2,P100\nn2,96000,393216,8,G2\n", "f")

    assert [(s.name, s.cards, s.model.name, s.model.memory_mib) for s in specs] == [
        ("n1", 2, "P100", 16_384),
        ("n2", 8, "G2", 32_768),
    ]


def test_fewer_nodes_are_evenly_spaced_so_that_the_mix_stays() -> None:
    """Ten of two kinds, cut to four: two of each."""
    text = NODES + "".join(f"n{n},1000,1000,{2 if n < 5 else 8},M\n" for n in range(10))

    assert [spec.cards for spec in openb.nodes(text, "f", most=4)] == [2, 2, 8, 8]
