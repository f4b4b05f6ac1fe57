"""The fixtures of the real control plane and of Jaeger: what a test may rely on."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from tests.servers.control_plane import HollowNode
from tests.servers.ports import reserve_port
from tests.servers.process import ServerProcess, StartError

if TYPE_CHECKING:
    from tests.servers.control_plane import ControlPlane
    from tests.servers.jaegerd import Jaeger


@pytest.mark.cluster
async def test_a_node_has_the_size_that_was_asked_for(control_plane: ControlPlane) -> None:
    """Claim: cpus, memory, devices and labels of a hollow node are the test's choice."""
    labels = {"gpubus.dev/pool": "a"}
    async with HollowNode(control_plane, "sized", labels, cpus=24, memory_mib=4096, gpus=3) as node:
        found = await node.node()
    allocatable = found["status"]["allocatable"]
    assert (allocatable["cpu"], allocatable["memory"], allocatable["nvidia.com/gpu"]) == ("24", "4Gi", "3")
    assert found["metadata"]["labels"].items() >= labels.items()
    assert await node.node() == {}


@pytest.mark.cluster
async def test_the_tenant_has_no_rights(control_plane: ControlPlane) -> None:
    """Claim: the second token is a user who may do nothing, told apart from an unknown one."""
    tenant = await control_plane.api("GET", "/api/v1/nodes", token=control_plane.tenant_token)
    unknown = await control_plane.api("GET", "/api/v1/nodes", token="somebody")
    assert (tenant.status, unknown.status) == (403, 401)


@pytest.mark.cluster
async def test_a_killed_api_server_is_back_on_the_same_port(control_plane: ControlPlane) -> None:
    """Claim: refused while it is away, everything there afterwards."""
    namespace, url = await control_plane.namespace(), control_plane.url
    await control_plane.kill9_apiserver()
    assert (await control_plane.api("GET", "/readyz", timeout_s=2.0)).status == 0
    await control_plane.start_apiserver()
    assert control_plane.url == url
    assert (await control_plane.api("GET", f"/api/v1/namespaces/{namespace}")).status == 200


@pytest.mark.cluster
async def test_a_service_account_has_a_token(control_plane: ControlPlane) -> None:
    """Claim: TokenRequest works, so that permissions can be tested with the account that has them."""
    token = await control_plane.service_account_token("default", "default")
    assert (await control_plane.api("GET", "/api/v1/nodes", token=token)).status == 403


@pytest.mark.cluster
async def test_spans_sent_to_jaeger_are_found(jaeger: Jaeger) -> None:
    """Claim: what is exported over OTLP comes back from the query API, with parent and service."""
    provider = TracerProvider(resource=Resource({"service.name": "fixture"}))
    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(f"{jaeger.otlp_url}/v1/traces")))
    tracer = provider.get_tracer("test")
    with tracer.start_as_current_span("parent") as parent, tracer.start_as_current_span("child"):
        pass
    trace_id = f"{parent.get_span_context().trace_id:032x}"
    found = await jaeger.wait_for_trace(trace_id, spans=2)
    provider.shutdown()
    assert {span["operationName"] for span in found["spans"]} == {"parent", "child"}
    assert "fixture" in await jaeger.services()
    assert trace_id in {trace["traceID"] for trace in await jaeger.traces("fixture")}
    assert await jaeger.traces(trace_id="0" * 31 + "1") == []


def test_a_port_is_reserved_until_it_is_released() -> None:
    """Claim: no second reservation of the same number, here or in another process; after the release there is."""
    port = reserve_port()
    code = f"from tests.servers.ports import reserve_port; reserve_port([{port.number}])"

    def other_process() -> int:
        return subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, timeout=30).returncode

    assert other_process() == 1
    port.release()
    assert other_process() == 0


async def test_a_server_that_does_not_start_shows_its_log(tmp_path: Path) -> None:
    """Claim: the error carries name, exit status and the end of the log."""
    script = "print('the reason'); raise SystemExit(3)"
    process = ServerProcess("sad", [sys.executable, "-c", script], tmp_path / "log")
    process.launch()

    async def never() -> bool:
        return False

    with pytest.raises(StartError, match="exit status 3") as caught:
        await process.ready(never, timeout_s=20.0)
    assert "the reason" in caught.value.log_tail


def test_servers_die_with_the_tests_that_started_them(tmp_path: Path) -> None:
    """Claim: `kill -9` of the parent leaves no server behind."""
    code = """
import os, sys, pathlib
from tests.servers.process import ServerProcess
server = ServerProcess("s", ["/bin/sleep", "600"], pathlib.Path(sys.argv[1]) / "log")
server.launch()
import time; time.sleep(0.3)
print(server.pid, flush=True)
os.kill(os.getpid(), 9)
"""
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False, capture_output=True, timeout=30)
    pid = int(done.stdout)
    give_up = time.monotonic() + 5.0
    while _alive(pid):
        assert time.monotonic() < give_up
        time.sleep(0.02)


def _alive(pid: int) -> bool:
    """Whether the process runs; a zombie that nobody has reaped yet does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii")
    except FileNotFoundError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


@pytest.mark.parametrize(("ci", "word"), [("", "skipped"), ("true", "error")])
def test_missing_programs_are_skipped_at_home_and_fail_in_ci(tmp_path: Path, ci: str, word: str) -> None:
    """Claim: one line that says what is missing and what to do."""
    env = {**os.environ, "GPUBUS_TEST_BIN": str(tmp_path), "CI": ci}
    here = f"{__file__}::test_the_tenant_has_no_rights"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", here]
    done = subprocess.run(command, check=False, capture_output=True, timeout=60, env=env, text=True)
    assert f"1 {word}" in done.stdout
    assert "run tests/cluster/build.sh" in done.stdout
    assert (done.returncode == 0) is (ci == "")
