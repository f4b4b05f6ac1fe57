"""The pure core of the scheduler: states and requests in, placements and reasons out. No I/O, clock or randomness.

    decide(state, request, policy, rankings)       one request: Placed or Unplaced               decide
    place_gang(state, members, policy, rankings)   all members or none                           gang
    explain(state, request), what_if(...)          the whole answer for people                   explain
    POLICIES                                       the table of policies                         policies
    Rankings                                       what is remembered between decisions          ranking

A request becomes a `Shape` (request), a node a `NodeView` (view). Whether one fits the other is told twice: fast, by
`feasibility.fast`, and with reasons, by the rules in `feasibility`. Which of the feasible nodes is best is told by
`scores`, weighed in `policies`, kept in order by `ranking`. `mix` and `fragments` know what is likely to come.
"""
