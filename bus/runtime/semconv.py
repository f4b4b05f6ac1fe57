"""Names of span attributes, spans and metrics, in one place: the messaging conventions are still in development.

`messaging.*` follow OpenTelemetry's semantic conventions 1.4x; `gpubus.*` are ours.
"""

from __future__ import annotations

from typing import Final

# --- messaging (OpenTelemetry) ---------------------------------------------------------------------------------------

MESSAGING_SYSTEM: Final = "messaging.system"
SYSTEM_NATS: Final = "nats"
MESSAGING_DESTINATION: Final = "messaging.destination.name"
MESSAGING_OPERATION: Final = "messaging.operation.type"
OPERATION_SEND: Final = "send"
OPERATION_PROCESS: Final = "process"
MESSAGING_MESSAGE_ID: Final = "messaging.message.id"
MESSAGING_BODY_BYTES: Final = "messaging.message.body.size"
MESSAGING_BATCH_COUNT: Final = "messaging.batch.message_count"
ERROR_TYPE: Final = "error.type"

# --- what a span is about (ours) -------------------------------------------------------------------------------------

REQUEST_UID: Final = "gpubus.request.uid"
REQUEST_KEY: Final = "gpubus.request.key"
"""`<namespace>/<name>`."""
GANG: Final = "gpubus.gang"
POOL: Final = "gpubus.pool"
EPOCH: Final = "gpubus.epoch"
LEDGER_SEQUENCE: Final = "gpubus.ledger.sequence"
LEDGER_RECORDS: Final = "gpubus.ledger.records"
STREAM: Final = "gpubus.stream"
STREAM_SEQUENCE: Final = "gpubus.stream.sequence"
NODE: Final = "gpubus.node"
CARDS: Final = "gpubus.cards"
"""UUIDs of the chosen cards, a list."""
SHARE_MILLI: Final = "gpubus.share_milli"
MEMORY_MIB: Final = "gpubus.memory_mib"
POLICY: Final = "gpubus.policy"
SCORE: Final = "gpubus.score"
RUNNER_UP: Final = "gpubus.runner_up"
FEASIBLE_NODES: Final = "gpubus.nodes.feasible"
REJECTED_NODES: Final = "gpubus.nodes.rejected"
REASON: Final = "gpubus.reason"
REASON_CODE: Final = "gpubus.reason.code"
PHASE: Final = "gpubus.phase"
POD: Final = "gpubus.pod"
CAUSE: Final = "gpubus.cause"
INCARNATION: Final = "gpubus.incarnation"

# --- resource --------------------------------------------------------------------------------------------------------

SERVICE_NAME: Final = "service.name"
SERVICE_NAMESPACE: Final = "service.namespace"
SERVICE_INSTANCE: Final = "service.instance.id"
SERVICE_VERSION: Final = "service.version"

# --- metrics of the runtime ------------------------------------------------------------------------------------------

LOOP_LAG_S: Final = "gpubus.loop.lag"
RETRIES: Final = "gpubus.retries"
