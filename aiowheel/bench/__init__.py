"""The benchmarks of `aiowheel bench`: workloads, baselines and programs. Rank 5.

A side is one contender at one size on one loop, in its own process. The sides of a run take turns,
round by round. See docs/explanation/how-we-benchmark.md.
"""
