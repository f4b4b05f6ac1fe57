"""What a reconciler can be asked at any time, as gauges; counters are where the counting is done."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from opentelemetry.metrics import CallbackOptions, Meter, Observation

from reconciler.service import Reconciler


def watch(meter: Meter, reconciler: Reconciler) -> None:
    """Register the gauges of one reconciler."""
    gauges: tuple[tuple[str, str, Callable[[], int]], ...] = (
        ("active", "1 while this process may act", lambda: int(reconciler.may_act())),
        ("queue", "pods that wait to be looked at or are being looked at", lambda: len(reconciler.queue)),
        ("refused", "pods that Kubernetes refuses, for good or for now", lambda: len(reconciler.worker.refusals())),
        ("unsaid", "subjects whose last word is not stored yet", lambda: reconciler.board.behind),
        ("pods", "pods in the informer", lambda: len(reconciler.pods.store.objects)),
        ("nodes", "nodes in the informer", lambda: len(reconciler.nodes.store.objects)),
        ("strangers", "pods of another epoch that no request of the ledger owns", reconciler.strangers),
        ("placeholders", "pods that hold cards of shared nodes", lambda: reconciler.placeholders.count),
        ("lost_cards", "sold cards of shared nodes that no placeholder holds", lambda: reconciler.placeholders.lost),
        ("relists", "times that the pods were listed", lambda: reconciler.pods.relists),
    )
    for name, text, read in gauges:
        meter.create_observable_gauge(f"gpubus.reconciler.{name}", callbacks=[_observing(read)], description=text)


def _observing(read: Callable[[], int]) -> Callable[[CallbackOptions], Iterable[Observation]]:
    return lambda _: [Observation(read())]
