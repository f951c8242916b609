"""Sweeps: many runs of one experiment file in which some settings have several values.

options    the options of the [sweep] table
settings   the settings of an experiment, and the types they accept
axes       from a file to the points of its grid
names      names of points
plan       from points to run directories
worker     one run in its own process
machine    available processors and memory
run_pool   concurrent runs, within those limits
board      progress of all runs
execute    a whole sweep, from its plan to its outcome
"""
