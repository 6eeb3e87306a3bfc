"""Which trial comes next: seeds in waves, and search.

race    which cells get further seeds
waves   the trials of a planned sweep, wave by wave
tpe     cells chosen by Optuna from the results so far
verify  a suggestion against the base on fresh seeds
cost    what a sweep would cost, measured
queue   what the engine sees of either
"""
