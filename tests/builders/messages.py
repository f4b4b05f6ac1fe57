"""One example of every message, with every field set to something that is not its default.

Their bytes are kept under `tests/golden/messages/<tag>.json`: what was once released must be readable for ever.
A new message, or a field added to an example, is written by

    python -m tests.builders.messages

which prints what changed. A changed line of a released message in the diff is a break of the wire language.
"""

from __future__ import annotations

from pathlib import Path

from contracts import (
    answers,
    constraints,
    decisions,
    functions,
    inventory,
    outcomes,
    quotas,
    requests,
    shares,
    usage,
    workloads,
)
from contracts.catalog import tag_of
from contracts.messages import Message, encode
from contracts.units import CardUuid, NodeName, RequestUid

GOLDEN = Path(__file__).resolve().parent.parent / "golden" / "messages"

UID = RequestUid("0badcafe-12-3")
NODE = NodeName("gpu-1.rack-2")
CARD = CardUuid("GPU-8f7e6d5c-4b3a-2918-0716-253443526170")
OTHER = CardUuid("GPU-00000000-0000-0000-0000-000000000001")

POD = requests.PodTemplate(
    image="registry.example:5000/team/train:1.2",
    command=("python", "-m", "train"),
    args=("--epochs", "3"),
    env=(requests.EnvVar(name="MODE", value="fast, ümlaut"),),
    cpu_milli=2000,
    memory_mib=8192,
    labels={"team": "a", "example.org/app": "train"},
    annotations={"example.org/note": 'say "hi"\n'},
    working_dir="/srv",
    restart_policy="OnFailure",
    grace_s=60,
)
GPU = requests.GpuAsk(
    cards=2,
    share_milli=500,
    memory_mib=20_480,
    models=("A100-SXM4-80GB", "H100"),
    memory_milli=250,
    min_card_memory_mib=40_960,
    nvlink="prefer",
)
NODE_TERM = constraints.NodeTerm(
    match_expressions=(constraints.Expression(key="generation", operator="Gt", values=("7",)),),
    match_fields=(constraints.FieldExpression(key="metadata.name", operator="NotIn", values=(NodeName("gpu-9"),)),),
)
SELECTOR = constraints.PodSelector(
    match_labels={"app": "bert"},
    match_expressions=(constraints.PodExpression(key="tier", operator="NotIn", values=("test",)),),
)
REQUEST = requests.PodRequest(
    name="train-7",
    pod=POD,
    gpu=GPU,
    priority=-5,
    priority_class="low",
    expected_s=7200,
    policy="spread",
    gang=requests.GangRef(name="gang-1", size=4, min=2, within="domain", topology_key="rack"),
    locality=requests.Locality(affinity="model-x", anti_affinity="noisy", exclusion="Team.A"),
    node_selector={"zone": "b"},
    tolerations=(
        requests.Toleration(key="gpu", operator="Equal", value="yes", effect="NoSchedule"),
        requests.Toleration(operator="Exists", effect="NoExecute"),
    ),
    node_affinity=constraints.NodeAffinity(
        required=(NODE_TERM,), preferred=(constraints.PreferredNodeTerm(weight=7, term=NODE_TERM),)
    ),
    topology_spread=(
        constraints.TopologySpread(
            topology_key="rack", max_skew=2, when_unsatisfiable="ScheduleAnyway", selector=SELECTOR
        ),
    ),
    pod_affinity=constraints.PodAffinity(required=(constraints.PodTerm(topology_key="rack", selector=SELECTOR),)),
    pod_anti_affinity=constraints.PodAffinity(
        preferred=(constraints.PreferredPodTerm(weight=3, term=constraints.PodTerm(topology_key="rack")),)
    ),
    external=requests.ExternalPod(name="web-0", uid="0e7f"),
    cause="cli-1",
)
QUOTA = quotas.NamespaceQuota(
    namespace="team-a",
    share_milli=8000,
    memory_mib=400_000,
    weight=2,
    max_priority=100,
    removed=True,
    reason="moved to another cluster",
    cause="ops-2",
)
SLICES = (
    decisions.CardSlice(card=CARD, share_milli=500, memory_mib=20_480),
    decisions.CardSlice(card=OTHER, share_milli=500, memory_mib=20_480),
)
PLACEMENT = decisions.Placement(node=NODE, slices=SLICES, cpu_milli=2000, memory_mib=8192)
RATIONALE = decisions.Rationale(
    policy="spread",
    version=2,
    ties="digest of the node",
    parts={"value_drop": -12_345_678, "drain_price": -1},
    chosen=decisions.Candidate(node=NODE, score=873),
    runner_up=decisions.Candidate(node=NodeName("gpu-2"), score=-12),
    feasible_nodes=3,
    rejected_nodes=9,
    nominated=17,
    instead_of="file:mine.py: it raised ZeroDivisionError",
)
CARD_OF = inventory.Card(
    uuid=CARD,
    index=1,
    model="A100-SXM4-80GB",
    memory_total_mib=81_920,
    memory_reserved_mib=631,
    mig_enabled=False,
    health="suspect",
    health_reason="XID 94",
    isolation="mps",
    nvlink_group=0,
    pcie_group=2,
    numa_node=1,
    parent=OTHER,
    mig_profile="1g.10gb",
    memory_unmanaged_mib=1024,
    unmanaged_by="python3 (4243)",
    health_needs="time",
    health_since_ms=1_790_000_000_000,
)
INVENTORY = inventory.NodeInventory(
    node=NODE,
    boot_id="b5c2",
    incarnation="monitor-1a2b3c4d",
    sequence=3,
    cards=(CARD_OF,),
    driver_version="580.95.05",
    cuda_version="13.0",
    provider="simulated",
    cause="start",
)
FACTS = inventory.NodeFacts(
    node=NODE,
    uid="7f0e",
    gone=True,
    ready=False,
    unschedulable=True,
    labels={"kubernetes.io/hostname": "gpu-1"},
    taints=(inventory.Taint(key="gpu", effect="NoSchedule", value="yes"),),
    allocatable_cpu_milli=63_000,
    allocatable_memory_mib=515_000,
    allocatable_pods=250,
    foreign_cpu_milli=1200,
    foreign_memory_mib=900,
    foreign_pods=7,
    mode="coexist",
    acquired=(CardUuid("GPU-4e2f"),),
    acquiring="UnexpectedAdmissionError",
    cause="watch-99",
)
REASON = outcomes.Reason(
    code="card-memory",
    text="needs 20480 MiB on a card, 1024 free",
    needed=20_480,
    free=1024,
    unit="MiB",
    nodes=3,
    node=NODE,
    card=CARD,
)
REFUSAL = outcomes.Refusal(field="gpu.share_milli", value="0", bound=">= 1", text="gpu.share_milli is 0, must be >= 1")
COMMIT = decisions.Commit(
    pool="default",
    epoch="0badcafe",
    number=12,
    predecessor=4711,
    author="scheduler-1a2b3c4d",
    term=17,
    policy_version="3",
    requests_through=815,
    at_ms=1_790_000_000_123,
    records=(
        decisions.EpochStarted(epoch="0badcafe", reason="first start"),
        decisions.Accepted(
            uid=UID,
            namespace="team-a",
            request=REQUEST,
            trace="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-03",
            request_sequence=815,
            submitted_ms=1_790_000_000_100,
        ),
        decisions.Withdrawn(uid=UID, reason="changed my mind"),
        decisions.Reserved(uid=UID, placement=PLACEMENT, rationale=RATIONALE),
        decisions.Adopted(uid=UID, placement=PLACEMENT, pod="train-7-abcde", running=True),
        decisions.Resized(uid=UID, share_milli=250, memory_mib=10_240, cpu_milli=1500, reason="infeasible"),
        decisions.Released(uid=UID, evidence="ended", detail="exit code 0", requeue=True),
        decisions.Observed(uid=UID, phase="bound", pod="train-7-abcde", detail="ImagePullBackOff"),
        decisions.InventorySet(inventory=INVENTORY),
        decisions.FactsSet(facts=FACTS),
        decisions.HealthSet(node=NODE, health="suspect", reason="silent for 5 s"),
        decisions.CardHealthSet(node=NODE, card=CARD, health="cordoned", reason="repair", at_ms=1_790_000_000_123),
        decisions.Nominated(
            uid=UID,
            placement=PLACEMENT,
            victims=(RequestUid("0badcafe-11-0"),),
            why="preempts",
            expected_ms=1_790_000_100_000,
            version=1,
        ),
        decisions.NominationEnded(uid=UID, reason="it fits without waiting"),
        decisions.QuotaSet(quota=QUOTA),
        decisions.Refused(namespace="team-a", name="train-8", request_sequence=814, refusals=(REFUSAL,)),
    ),
    causes=("GPUBUS_REQUESTS:815",),
)

EXAMPLES: tuple[Message, ...] = (
    REQUEST,
    requests.Withdraw(name="train-7", reason="changed my mind", cause="cli-2"),
    requests.Resize(name="train-7", share_milli=250, memory_mib=10_240, cpu_milli=1500, cause="autoscaler-5"),
    INVENTORY,
    FACTS,
    inventory.Heartbeat(
        node=NODE,
        boot_id="b5c2",
        incarnation="monitor-1a2b3c4d",
        sequence=77,
        uptime_ms=77_000,
        cards=8,
        unhealthy=(CARD,),
    ),
    QUOTA,
    inventory.CordonCard(
        node=NODE, card=CARD, cordoned=True, repaired=True, reason="repair", at_ms=1_790_000_000_123, cause="ops-1"
    ),
    usage.NodeUsage(
        node=NODE,
        incarnation="monitor-1a2b3c4d",
        sequence=78,
        period_ms=1000,
        cards=(
            usage.CardUsage(
                uuid=CARD,
                compute_percent=93,
                memory_used_mib=40_000,
                power_w=310,
                temperature_c=71,
                sm_clock_mhz=1410,
                memory_clock_mhz=1593,
                ecc_corrected=12,
                ecc_uncorrected=1,
                processes=(
                    usage.ProcessUsage(
                        pid=4242,
                        memory_mib=20_000,
                        compute_percent=50,
                        belongs="request",
                        request=UID,
                        command="python3",
                        started_ticks=812_345,
                    ),
                    usage.ProcessUsage(pid=4243, memory_mib=900, belongs="nobody", command="python3"),
                ),
                slices=(
                    usage.SliceUsage(
                        uid=UID,
                        namespace="team-a",
                        pod="train-7-abcde",
                        share_milli=500,
                        limit_mib=20_480,
                        compute_percent=50,
                        average_milli=471,
                        memory_used_mib=20_000,
                        processes=1,
                    ),
                ),
                unmanaged_mib=900,
            ),
        ),
        cpu=usage.CpuUsage(cores=64, used_milli=12_000, memory_total_mib=515_000, memory_used_mib=100_000),
        containers=(
            usage.ContainerUsage(
                container="7f" * 32,
                runtime="containerd",
                pod_uid="8f9b5a2c-1d3e-4f60-9a7b-0c1d2e3f4a5b",
                uid=UID,
                namespace="team-a",
                pod="train-7-abcde",
                own=True,
                cpu_used_milli=1730,
                cpu_average_milli=1695,
                throttled_ms=42,
                throttled_permille=125,
                cpu_limited=True,
                cpu_limit_milli=2000,
                memory_mib=3100,
                memory_working_mib=2900,
                memory_limited=True,
                memory_limit_mib=4096,
            ),
        ),
        provider="simulated",
    ),
    COMMIT,
    decisions.CheckpointHead(
        pool="default",
        epoch="0badcafe",
        ledger_sequence=4711,
        number=3,
        digest="9f86d081",
        chunks=2,
        bytes_total=900_000,
    ),
    outcomes.Outcome(
        uid=UID,
        namespace="team-a",
        name="train-7",
        phase="ended",
        pod="train-7-abcde",
        pod_uid="9c1d",
        node=NODE,
        exit_code=137,
        reason="OOMKilled",
        ledger_sequence=4712,
        attempt=1,
        resize_refused=outcomes.ResizeRefused(wanted_milli=1500, has_milli=1000),
        cause="watch-100",
    ),
    outcomes.AskAllocations(after="team-a/train-6-xyzab", limit=50),
    outcomes.AllocationsPage(
        items=(
            outcomes.Allocation(
                uid=UID,
                namespace="team-a",
                epoch="0badcafe",
                ledger_sequence=4712,
                request=REQUEST,
                node=NODE,
                slices=SLICES,
                pod="train-7-abcde",
                running=True,
            ),
        ),
        unreadable=("team-b/odd: no slices",),
        last="team-a/train-7-abcde",
        more=True,
    ),
    outcomes.RequestEvent(
        namespace="team-a",
        name="train-7",
        uid=UID,
        phase="pending",
        text="waits for memory",
        reasons=(REASON,),
        refusals=(REFUSAL,),
        node=NODE,
        slices=SLICES,
        pod="train-7-abcde",
        ledger_sequence=4712,
        request_sequence=815,
        at_ms=1_790_000_000_456,
        cause="GPUBUS_LEDGER:4712",
    ),
    outcomes.DeadLetter(
        origin_stream="GPUBUS_REQUESTS",
        origin_subject="gpubus.v1.requests.team-a",
        origin_sequence=816,
        reason="JSON is malformed: invalid character (byte 0)",
        raw_base64="eA==",
        truncated=True,
        headers={"Nats-Msg-Id": "1"},
    ),
    outcomes.NodeShares(
        node=NODE,
        epoch="0badcafe",
        ledger_sequence=4712,
        assignments=(
            outcomes.ShareAssignment(
                uid=UID,
                namespace="team-a",
                pod="train-7-abcde",
                card=CARD,
                share_milli=500,
                memory_mib=20_480,
                port=50_051,
            ),
        ),
        pods=(outcomes.PodOnNode(uid=UID, pod_uid="0000-1111", container_id="c0ffee", cpu_limit_milli=2000),),
        last_port=50_060,
        cause="GPUBUS_LEDGER:4712",
    ),
    shares.NodeCpuLimits(
        node=NODE,
        epoch="0badcafe",
        sequence=17,
        limits=(shares.CpuLimit(uid=UID, limit_milli=1500),),
        cards=(shares.ShareLimit(uid=UID, card=CARD, limit_milli=750),),
        cause="autoscaler-6",
    ),
    shares.NodeVertical(
        node=NODE,
        mode="act",
        epoch="0badcafe",
        cpu_sequence=17,
        cpu_capacity_milli=31_000,
        pods=(
            shares.PodVertical(
                uid=UID,
                namespace="team-a",
                pod="train-7",
                managed=True,
                rule="bound",
                income_milli=350_000,
                savings_milli=12_500,
                cpu_sold_milli=2000,
                cpu_used_milli=1400,
                cpu_weight_milli=10_000,
                cpu_next_milli=1600,
                cpu_limit_milli=2000,
                cards=1,
                gpu_sold_milli=500,
                gpu_used_milli=490,
                gpu_weight_milli=30_000,
                gpu_next_milli=750,
                gpu_limit_milli=750,
                reason="cpu: Invalid argument",
            ),
        ),
    ),
    shares.NodeEnforcement(
        node=NODE,
        incarnation="monitor-1",
        epoch="0badcafe",
        ledger_sequence=4712,
        cpu_sequence=17,
        cards=(
            shares.CardEnforcement(
                card=CARD, mode="gemini", declared="both", enforced="none", reason="not ours", note="one card a pod"
            ),
        ),
        pods=(
            shares.PodEnforcement(uid=UID, what=CARD, state="waiting", reason="nobody listens", port=50_051),
            shares.PodEnforcement(uid=UID, what="cpu", state="applied", limit_milli=1500),
        ),
        refused="shares of epoch 0badcaff, which is over",
    ),
    workloads.Function(
        name="resnet",
        pod=POD,
        gpu=GPU,
        replicas=3,
        min_replicas=1,
        max_replicas=20,
        warm_replicas=2,
        promotion=workloads.Promotion(rule="best-fit", free_mib=4096, card_slots=3, near={"zone": "a"}),
        target_percent=60,
        scaling=workloads.Scaling(
            metric="rate",
            concurrency=4,
            rate_milli=30_000,
            stable_s=120,
            panic_s=12,
            panic_percent=150,
            tolerance_percent=5,
            period_s=30,
            up_percent=200,
            up_step=2,
            down_percent=80,
            down_step=3,
            down_delay_s=45,
            zero_grace_s=90,
            warmup_s=10,
            drain_s=20,
            missing_hold_s=600,
            fallback_replicas=1,
            by_hand="adopt",
            policy="watermark",
            low=2,
            high=9,
            reuse=False,
            profiles=(workloads.Profile(model="H100", share_milli=250, rate_milli=30_000, latency_ms=60),),
            slices="cheapest",
            latency_ms=100,
            stretch_percent=200,
            start_s=300,
            silent_s=120,
        ),
        stopped=True,
        cause="cli-3",
    ),
    workloads.Job(
        name="bert",
        pod=POD,
        gpu=GPU,
        min_trainers=2,
        max_trainers=16,
        fault_tolerant=True,
        max_failures=5,
        notice_s=60,
        priority=10,
        node_selector={"zone": "a"},
        tolerations=(requests.Toleration(key="batch", operator="Exists"),),
        paused=True,
        stopped=True,
        cause="cli-4",
    ),
    workloads.JobStatus(
        namespace="team-a",
        name="bert",
        phase="scaling",
        reason="3 of 4 trainers are running",
        generation=2,
        target=4,
        trainers=(
            workloads.TrainerSpan(first=0, last=2, state="known"),
            workloads.TrainerSpan(first=4, last=4, state="leaving", deadline_ms=1_700_000_030_000),
            workloads.TrainerSpan(first=5, last=5, state="asked"),
        ),
        next_index=6,
        gang_first=1,
        gang_size=2,
        running=3,
        waiting=1,
        succeeded=1,
        failed=1,
        job_sequence=7,
        changed_ms=1_700_000_000_000,
        waiting_since_ms=1_700_000_000_500,
        history=(workloads.ScaleRecord(at_ms=1_700_000_000_000, generation=2, before=2, after=4, rule="room"),),
        cause="cli-4",
    ),
    workloads.ShrinkNotice(
        namespace="team-a",
        name="bert",
        generation=3,
        target=2,
        trainers=(2, 3),
        deadline_ms=1_700_000_030_000,
        rule="yields",
        cause="job bert",
    ),
    workloads.Checkpointed(job="bert", index=3, generation=3, step=120_000, cause="bert-t3"),
    workloads.ScaleDecision(
        namespace="team-a",
        name="resnet",
        kind="function",
        target=4,
        present=3,
        rule="load",
        inputs={"busy_percent": 81},
        at_ms=1_790_000_001_000,
        cause="usage-5",
    ),
    functions.Call(id="c-17", caller="g4f2", timeout_ms=30_000, body='{"x": 1}', cause="cli-5"),
    functions.CallReply(
        id="c-17", outcome="failed", body="partial", error="ValueError: no x", worker="w-9", attempt=2, waited_ms=41
    ),
    functions.WorkerReport(
        worker="w-9",
        replica="resnet-2",
        phase="draining",
        in_flight=3,
        limit=4,
        done=120,
        sequence=77,
        cause="order-6",
    ),
    functions.WorkerOrder(order="promote", cause="scale-7"),
    functions.ScalingSwitch(frozen=True, reason="maintenance", at_ms=1_790_000_002_000, cause="operator-8"),
    functions.FunctionStatus(
        target=5,
        rule="panic+no-room",
        ready=2,
        starting=1,
        warm=1,
        draining=1,
        waiting=40,
        outstanding=8,
        missing=functions.MissingCards(
            replicas=2,
            cards=4,
            share_milli=500,
            memory_mib=20_480,
            models=("H100",),
            reason="no card of these models has 500 thousandths free",
        ),
        profiles=(workloads.Profile(model="H100", share_milli=250, rate_milli=28_500),),
        at_ms=1_790_000_003_000,
        cause="scale-9",
    ),
    answers.SubmitReply(accepted=True, uid=UID, ledger_sequence=4712, duplicate=True, refusals=(REFUSAL,)),
    answers.AskExplain(name="train-7"),
    workloads.AskJob(index=3),
    answers.Explanation(
        known=True,
        namespace="team-a",
        name="train-7",
        uid=UID,
        phase="pending",
        ask=GPU,
        placement=PLACEMENT,
        rationale=RATIONALE,
        reasons=(REASON,),
        nearest=answers.Nearest(text="19456 MiB more on one card", node=NODE, card=CARD, missing=19_456, unit="MiB"),
        nodes=(answers.NodeVerdict(node=NODE, score=873, scores={"packing": 873}, reason=REASON),),
        ledger_sequence=4712,
        policy="spread",
        trace="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-03",
        queue=answers.QueueView(
            position=2,
            pending=40,
            priority=-100,
            aged=200,
            waited_s=7300,
            share_ppm=125_000,
            weight=2,
            nominated=NODE,
            waits_for=("team-b/train-1",),
        ),
    ),
    answers.AskState(what="requests", namespace="team-a", after="team-a/train-6", limit=50),
    answers.StateView(
        ledger_sequence=4712,
        epoch="0badcafe",
        policy="spread",
        requests=(
            answers.RequestView(
                namespace="team-a",
                name="train-7",
                uid=UID,
                phase="running",
                cards=2,
                share_milli=500,
                memory_mib=20_480,
                node=NODE,
                slices=(f"{CARD} 500/1000 20480 MiB",),
                pod="train-7-abcde",
                priority=-5,
                gang="gang-1",
                reason="fits",
                submitted_ms=1_790_000_000_100,
                nominated=NODE,
                attempt=1,
            ),
        ),
        quotas=(
            answers.QuotaView(
                namespace="team-a",
                mapped=True,
                share_milli=8000,
                memory_mib=400_000,
                used_milli=500,
                used_mib=20_480,
                weight=2,
                max_priority=100,
            ),
        ),
        cards=(
            answers.CardView(
                node=NODE,
                card=CARD_OF,
                used_milli=500,
                used_mib=20_480,
                sellable_mib=81_289,
                residents=("team-a/train-7",),
                health="suspect",
                cordoned=True,
                reason="repair",
                since_ms=1_790_000_000_123,
            ),
        ),
        nodes=(
            answers.NodeView(
                node=NODE,
                health="fresh",
                ready=True,
                cards=8,
                used_cpu_milli=2000,
                allocatable_cpu_milli=63_000,
                used_memory_mib=8192,
                allocatable_memory_mib=515_000,
                used_card_milli=500,
                reason="all is well",
            ),
        ),
        summary=answers.Summary(
            accepted=9, pending=1, placed=2, running=3, withdrawn=1, ended=2, over_commits=1, nodes=4, cards=32
        ),
        last="team-a/train-7",
        more=True,
    ),
)


def golden_path(message: Message) -> Path:
    """Where the bytes of its example are kept."""
    return GOLDEN / f"{tag_of(type(message))}.json"


def main() -> None:
    """Write what is missing or has grown."""
    GOLDEN.mkdir(parents=True, exist_ok=True)
    for message in EXAMPLES:
        path, data = golden_path(message), encode(message) + b"\n"
        before = path.read_bytes() if path.exists() else b""
        if before != data:
            path.write_bytes(data)
            print("CHANGED" if before else "new", path.name)  # noqa: T201 - a command


if __name__ == "__main__":
    main()
