"""The single truth: one append-only log of commits, a pure fold, compare-and-set on the head.

Pure:   state       what the commits add up to
        fold        apply a commit or a record: rules (what must not be), on_requests and on_nodes (what each does)
        snapshot    dump, load, digest, copy
        proof       the whole log judged, with a second set of books
Shells: append      write a commit, find out what became of it
        follow      read: open at the end, go on with what comes
        checkpoint  when the next one is due; shelf: how they are stored and found
"""
