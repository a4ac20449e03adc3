"""A soak: random programs on 1 to 9 ranks, compared with a model in NumPy.

    python benchmarks/soak --seconds 3600                      # as long as you like; all transports in turn
    python benchmarks/soak --seed 7 --transport tcp            # one program, which the seed alone determines
    python benchmarks/soak --backend local --count 500         # another backend

A program is a list of steps that all ranks derive from the seed (`program`): collectives, messages in any order, groups
that come and go, threads, ends. Every rank does its part of each step and compares the result with what the model says
(`values`). Processes serve many programs, each in groups of its own (`pool`). A program that fails, or stands still, is
run again with fewer steps for as long as it still fails (`minimise`), and the line that replays it is printed.
"""
