"""The single truth: one append-only log of commits, a pure fold, compare-and-set on the head.

`state` and `fold` are pure; `append`, `follow` and `checkpoint` are the thin shells that talk to the bus.
"""
