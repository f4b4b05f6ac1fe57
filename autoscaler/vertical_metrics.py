"""What vertical scaling last said, as gauges: made when somebody asks, so they vanish with their pods.

Labels as KuScale exports them: `name` (CPU, GPU), `id` (namespace/pod) and `node`; limits in percent of one core or of
one card. `kuscale_next_limit` is there also while it only observes: it is what would be done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from bus.runtime.series import Gauge
from contracts.shares import NodeVertical, PodVertical

_OF_A_POD: tuple[tuple[str, str, Callable[[PodVertical], float]], ...] = (
    ("kuscale_token_reservation", "Tokens a second that the pod may spend.", lambda pod: pod.income_milli / 1000),
    ("kuscale_token_queue", "Tokens that the pod has saved.", lambda pod: pod.savings_milli / 1000),
    ("gpubus_vertical_managed", "1 for pods whose owner asked for it.", lambda pod: float(pod.managed)),
)
_OF_A_RESOURCE: tuple[tuple[str, str, Callable[[PodVertical], tuple[int | None, int | None]], int], ...] = (
    (
        "kuscale_next_limit",
        "What vertical scaling grants, or would: percent of one core or card.",
        lambda pod: (pod.cpu_next_milli, pod.gpu_next_milli if pod.cards else None),
        10,
    ),
    (
        "kuscale_dynamic_weight",
        "Weight of headroom; larger gets less of it.",
        lambda pod: (pod.cpu_weight_milli, pod.gpu_weight_milli if pod.cards else None),
        1000,
    ),
    (
        "gpubus_vertical_limit",
        "The limit that was published, percent of one core or card; absent = none.",
        lambda pod: (pod.cpu_limit_milli, pod.gpu_limit_milli),
        10,
    ),
)


def gauges(told: Iterable[NodeVertical]) -> Iterator[Gauge]:
    """Everything that was said of all nodes."""
    pods = [(node.node, f"{pod.namespace}/{pod.pod}", pod) for node in told for pod in node.pods]
    for name, text, read in _OF_A_POD:
        series = tuple(((key, node), read(pod)) for node, key, pod in pods)
        yield Gauge(name=name, text=text, labels=("id", "node"), series=series)
    for name, text, both, per in _OF_A_RESOURCE:
        found = [
            ((kind, key, node), number / per)
            for node, key, pod in pods
            for kind, number in zip(("CPU", "GPU"), both(pod), strict=True)
            if number is not None
        ]
        yield Gauge(name=name, text=text, labels=("name", "id", "node"), series=tuple(found))
