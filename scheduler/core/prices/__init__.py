"""What card share is worth: a linear program over patterns of cards, its bound and its prices. Pure.

    supply    what there is and what is asked for
    columns   the most that any choice of pods could get placed, and a price for each ask
    priced    tables of what idle parts of cards are worth at these prices, for the policy `node-value`
    stock     the hardware as nodes come and go, and the prices that follow

The solver is HiGHS (`highspy`, the extra `gpubus[lp]`); nothing else of gpubus needs it, and it is imported when it is
first asked for: import from the modules, so that whoever does without pays nothing.
"""
