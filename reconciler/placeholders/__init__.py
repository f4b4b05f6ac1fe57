"""Whole cards beside other schedulers: on nodes in mode `coexist` a card is ours while a placeholder pod holds it.

    survey    what a node is like, from the pods, the Node object and the ledger                     pure
    demand    which waiting requests would go onto a card that we have not got                       pure
    memory    what was tried, what failed, since when a card is idle                                 pure
    plan      one node: what to acquire, to prove, to give back, to clear away                       pure
    render    the placeholder as a pod
    desk      does it, and tells people

The placeholder asks the device plugin for one card like anybody else; its pod's status says which one it got. Nothing
is taken from the kubelet's checkpoint file, which lags behind, and nothing is kept on disk: the placeholders carry what
a restart needs to know in their annotations.
"""

from reconciler.placeholders.desk import PlaceholderDesk
from reconciler.placeholders.survey import Kept, kept
from reconciler.placeholders.values import Rules, mode_of

__all__ = ["Kept", "PlaceholderDesk", "Rules", "kept", "mode_of"]
