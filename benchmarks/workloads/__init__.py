"""The workloads: each is an asynchronous generator of rounds.

The setup precedes the first round. Each `anext` then runs one round and yields its figures: CPU
nanoseconds per operation unless the name says otherwise. The figure `x_empty` is the empty harness
of `x`.
"""
