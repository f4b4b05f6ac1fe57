"""Gemini's two files, byte for byte, and back: what we would not have written is refused and never misread."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.enforce.gemini_files import (
    LONGEST,
    BadFile,
    Client,
    Listener,
    config_bytes,
    port_bytes,
    read_config,
    read_ports,
)

GIB = 1 << 30
A = Client(name="team/train-abcde", request_milli=250, limit_milli=500, memory_bytes=8 * GIB)
B = Client(name="team/infer-fghij", request_milli=1000, limit_milli=1000, memory_bytes=0)


@pytest.mark.parametrize(
    ("clients", "expected"),
    [
        ((), b"0\n"),
        ((A,), b"1\nteam/train-abcde 0.250000 0.500000 8589934592\n"),
        ((A, B), b"2\nteam/infer-fghij 1.000000 1.000000 0\nteam/train-abcde 0.250000 0.500000 8589934592\n"),
        (
            (Client(name="a/b", request_milli=1, limit_milli=333, memory_bytes=1),),
            b"1\na/b 0.001000 0.333000 1\n",
        ),
    ],
)
def test_the_config_file_is_as_geminis_scheduler_reads_it(clients: tuple[Client, ...], expected: bytes) -> None:
    """A count, then name, request, limit, bytes: request first, six decimals, one space, every line ended."""
    assert expected == config_bytes(clients)
    assert tuple(sorted(clients)) == read_config(expected)


@pytest.mark.parametrize(
    ("listeners", "expected"),
    [
        ((), b"0\n"),
        ((Listener(name="team/b", port=50_052), Listener(name="team/a", port=50_051)),
         b"2\nteam/a 50051\nteam/b 50052\n"),
    ],
)  # fmt: skip
def test_the_port_file_is_as_geminis_launcher_reads_it(listeners: tuple[Listener, ...], expected: bytes) -> None:
    """A count, then name and port."""
    assert expected == port_bytes(listeners)
    assert tuple(sorted(listeners)) == read_ports(expected)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "the last line does not end"),
        (b"0", "the last line does not end"),
        (b"\n", "line 1 is no count: ''"),
        (b"-1\n", "line 1 is no count: '-1'"),
        (b"00\n", "line 1 is no count: '00'"),
        (b"1\n", "line 1 announces 1 lines, 0 follow"),
        (b"0\na/b 0.100000 0.200000 1\n", "line 1 announces 0 lines, 1 follow"),
        (b"1\na/b 0.2 0.2 1\n", "line 2 is not of the form: 'a/b 0.2 0.2 1'"),
        (b"1\na/b 0.200000 0.100000 1\n", "line 2 is not of the form"),  # limit before request, as KubeShare 2.0 wrote
        (b"1\na/b 0.200000 1.100000 1\n", "line 2 is not of the form"),
        (b"1\na/b 0.200100 0.300000 1\n", "line 2 is not of the form"),
        (b"1\na/b  0.200000 0.300000 1\n", "line 2 is not of the form"),
        (b"1\na/b 0.200000 0.300000 -1\n", "line 2 is not of the form"),
        (b"1\nab 0.200000 0.300000 1\n", "line 2 is not of the form"),
        (b"2\na/b 0.200000 0.300000 1\na/b 0.100000 0.100000 1\n", "a name stands there twice"),
        (b"1\na/\xc3\xbc 0.200000 0.300000 1\n", "byte 4 is not ASCII"),
        (b"1\n" + b"x" * LONGEST + b"\n", "bytes, at most"),
    ],
)  # fmt: skip
def test_a_config_that_is_not_ours_is_refused_with_its_line(data: bytes, reason: str) -> None:
    """Half-written, counted wrongly, swapped columns, foreign bytes: each named."""
    with pytest.raises(BadFile) as refused:
        read_config(data)

    assert reason in str(refused.value)


@pytest.mark.parametrize("data", [b"1\na/b 0\n", b"1\na/b 65536\n", b"1\na/b 050051\n", b"1\na/b 5 \n", b"1\na/b\n"])
def test_a_port_that_is_none_is_refused(data: bytes) -> None:
    """0, beyond 65535, with leading zeros or more behind it."""
    with pytest.raises(BadFile):
        read_ports(data)


NAMES = st.from_regex(r"[a-z0-9][a-z0-9-]{0,8}/[a-z0-9][a-z0-9.-]{0,8}", fullmatch=True)


@st.composite
def clients_of(draw: st.DrawFn) -> Client:
    request = draw(st.integers(0, 1000))
    return Client(
        name=draw(NAMES),
        request_milli=request,
        limit_milli=draw(st.integers(request, 1000)),
        memory_bytes=draw(st.integers(0, 2**44)),
    )


@given(st.lists(clients_of(), max_size=6, unique_by=lambda c: c.name))
def test_what_is_written_is_read_back(clients: list[Client]) -> None:
    """Any clients, in any order: the same set comes back, sorted; and no proper prefix of the file is one."""
    data = config_bytes(clients)

    assert tuple(sorted(clients)) == read_config(data)
    for cut in range(len(data)):
        with pytest.raises(BadFile):
            read_config(data[:cut])


@given(st.lists(st.builds(Listener, name=NAMES, port=st.integers(1, 65_535)), max_size=6, unique_by=lambda x: x.name))
def test_ports_are_read_back(listeners: list[Listener]) -> None:
    """As the clients."""
    assert tuple(sorted(listeners)) == read_ports(port_bytes(listeners))


@given(
    st.binary(max_size=80)
    | st.text("0123456789 ./\nab-", max_size=60).map(str.encode)
    | st.builds(lambda a, i, b: a[: i % (len(a) + 1)] + b + a[i % (len(a) + 1) :], st.just(config_bytes((A, B))),
                st.integers(0, 200), st.binary(max_size=3))
)  # fmt: skip
def test_no_bytes_are_misread(data: bytes) -> None:
    """Garbage, and our own file with something put in: refused, or exactly a file that we would write."""
    for read, write in ((read_config, config_bytes), (read_ports, port_bytes)):
        try:
            found = read(data)
        except BadFile:
            continue

        assert sorted(data.split(b"\n")[1:]) == sorted(write(found).split(b"\n")[1:])
