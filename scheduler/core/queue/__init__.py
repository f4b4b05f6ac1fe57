"""The queue: who is tried next, who must wait for what, and who may take whose place.

    order       one number for how urgent a request is: priority, and what its wait has earned it
    fair        of two namespaces, who has less than its part
    quota       whether a namespace may hold more, in numbers
    waiting     who waits, by what they wait for; an event wakes only those it can help
    teams       gangs: who has arrived, who is placed, how many are still needed
    rounds      those who are awake, one after the other in queue order

    desk        what all parts of the queue share: the state, the index over it, what is done to it
    queue       events in; a turn: settle, wake, try, look ahead
    settle      those who have a place in sight get it, or go back to the queue; `nominees` tells which
    trying      those who are awake get a place, or wait for what they lack
    gangs       the same of gangs: as many members as fit together, or none

    ahead       places that will be free, for those who find none now
    first       the first in the queue: a place that drains for it, and who may use it meanwhile
    searched    searches in vain, so that only what changed since is looked at again
    loads       what is on a node, prepared for the search of victims
    victims     the fewest on one node who would have to leave
    places      of two places, the better one
    nominate    over all nodes: a place for a request, or for a gang, once others have left
    drain       a place to be waited for until others end by themselves
    renominate  nominations decided again, from the log
    proof       the rules of feasibility asked of a place before anybody is told to leave
    moves       one pod that could be elsewhere and make room: advice, nobody is moved
    trial       a state to try the members of a gang in, one after the other

    told        where a request stands in the queue, in numbers

Pure. What is kept here follows from the ledger's state and is built again from it; docs/queue.md tells the rules.
"""
