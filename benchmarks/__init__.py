"""The benchmarks: a module for each subcommand of `aiowheel bench`, and further programs.

A side is one contender at one size on one loop, in its own process. The sides of a run take turns,
round by round. See README.md, and docs/explanation/how-we-benchmark.md.
"""
