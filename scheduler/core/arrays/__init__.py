"""The cluster as arrays, and the inner loops of placement over them, compiled.

    rows      one row of whole numbers a node, kept up with the ledger's state
    standing  what placements do not change about a node
    tenants   who lives where, and how long they stay
    kernels   scores of one shape on the nodes that changed, prices, and the best two nodes
    tables    what was learned, as the arrays that kernels read
    board     the scores of one shape on all nodes: the answer to "where is it cheapest?"
    compiled  numba, where it is installed; the same functions as plain Python where it is not
    warm      compile everything, before the first request waits for it

Nothing here decides anything that `scheduler.core.menu` does not say in plain Python.
"""
