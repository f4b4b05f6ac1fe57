"""The queue: who is tried next, who must wait for what, and who may take whose place.

    order       one number for how urgent a request is: priority, and what its wait has earned it
    fair        of two namespaces, who has less than its part
    quota       whether a namespace may hold more, in numbers
    waiting     who waits, by what they wait for; an event wakes only those it can help
    rounds      those who are awake, one after the other in queue order
    teams       gangs: who has arrived, who is placed, how many are still needed
    loads       what is on a node, prepared for the search of victims
    victims     the fewest on one node who would have to leave
    nominate    over all nodes: a place for a request, or for a gang, once others have left
    drain       a place for the first in the queue, to be waited for until others end by themselves
    nominees    those who have a place in sight: given it, or sent back to the queue
    told        where a request stands in the queue, in numbers

Pure. What is kept here follows from the ledger's state and is built again from it; docs/queue.md tells the rules.
"""
