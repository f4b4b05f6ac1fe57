"""Decides: admission, the queue, placement, the ledger's only author."""
