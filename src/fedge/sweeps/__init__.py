"""Many runs of one experiment file in which some settings have several values.

options    what the [sweep] table says
settings   which settings there are, and what they take
axes       from a file to the points of its grid
names      what points are called
plan       from points to run directories
worker     one run in a process of its own
machine    what processors and memory there are
pool       as many runs at a time as that allows
board      how far all runs are
execute    the whole, from a plan to its outcome
"""
