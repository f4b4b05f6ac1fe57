"""The menu value: what a node is still worth to the pods that are likely to come, and prices for what is scarce.

FGD asks how much of a node the next pod cannot use, so it never sees combinations; a linear program asks what the best
mix of all classes could put there, so it believes that the exact filler of every hole will come to this very node. In
between: draw a random *menu* of m classes, ask how much of the node the best mix from it can fill, copies unlimited,
and take the mean over many menus. Common fillers are on nearly every menu, rare ones on few: rarity needs no weights.

What flows, each step a small pure function with its formula:

    learned mix, lifetimes ──▶ classes ──▶ draw (menus) ──▶ tables (knapsacks by idle share and price of CPU)
                                  │                              │
                                  ├──▶ spoil (fragments)         ├──▶ value of a node, before and after a pod
                                  ├──▶ cpu_value                 │
                                  └──▶ demand, ties (who presses on what) ──▶ prices       drain (who leaves when)

    cost = value drop + weight x fragment rise + tie price + slot price + CPU price + drain price

A pod goes where the rounded cost is least, ties by the fixed order of nodes. Nothing is learned yet: every cost is 0
and the fixed order decides alone, which is first-fit.

All of it is whole numbers: *micro* is a thousandth of a milli, the share of a card counts 1,000,000. Exponentials are
computed in `decimal`, once per table. So any machine gives the same bytes, compiled or not. What is here in plain
Python is the reference; `scheduler.core.arrays` does the same over arrays, and tests hold the two together.
"""
