"""gpubus: publish a pod request, get a slice of a card and the reason why. The Python API; see `gpubus.client`."""

from contracts.answers import Explanation, SubmitReply
from contracts.outcomes import RequestEvent
from contracts.requests import EnvVar, GangRef, GpuAsk, Locality, PodRequest, PodTemplate, Toleration
from gpubus.client import Client, connect
from gpubus.errors import AnswerIsNo, FrontError, NoAnswer, Unreachable, UsageError

__all__ = [
    "AnswerIsNo",
    "Client",
    "EnvVar",
    "Explanation",
    "FrontError",
    "GangRef",
    "GpuAsk",
    "Locality",
    "NoAnswer",
    "PodRequest",
    "PodTemplate",
    "RequestEvent",
    "SubmitReply",
    "Toleration",
    "Unreachable",
    "UsageError",
    "connect",
]
