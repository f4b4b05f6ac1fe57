"""Numbers that exist only while somebody is there to have them: gauges made at the moment they are asked for.

In: functions that return `Gauge`s. Out: a collector that Prometheus' own client asks at each scrape. An instrument that
is set keeps its labels for the life of the process; a gauge that is made anew has the series of now and no others, so
thousands of short pods leave nothing behind. Names are taken as they are, because dashboards know some of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import msgspec
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector


class Gauge(msgspec.Struct, frozen=True, kw_only=True):
    """One metric and its series: label values in the order of `labels`, and the number."""

    name: str
    text: str
    labels: tuple[str, ...]
    series: tuple[tuple[tuple[str, ...], float], ...]


class Scraped(Collector):
    """Asks `source` at each scrape. A metric without series is not shown at all."""

    def __init__(self, source: Callable[[], Iterable[Gauge]]) -> None:
        self._source = source

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """As Prometheus' client wants them; called in the thread of whoever scrapes."""
        for gauge in self._source():
            if gauge.series:
                family = GaugeMetricFamily(gauge.name, gauge.text, labels=gauge.labels)
                for values, number in gauge.series:
                    family.add_metric(values, number)
                yield family

    def describe(self) -> list[GaugeMetricFamily]:
        """Nothing: what there will be is not known before it is asked for."""
        return []
