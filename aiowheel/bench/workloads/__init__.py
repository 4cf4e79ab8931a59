"""What is measured: each workload is an asynchronous generator of rounds. Rank 5.

Setting up happens before the first round; each `anext` then runs one round and yields its figures,
times in nanoseconds of CPU time per operation unless the name says otherwise. A figure `x_empty` is
the harness of `x` with nothing in it.
"""
