"""Which trial comes next: seeds in waves, and search.

race    which cells get further seeds
waves   the trials of a planned sweep, wave by wave
tpe     cells chosen by Optuna from the results so far
queue   what the engine sees of either
"""
