"""What `aiowheel bench` runs: workloads, baselines and the programs that compare them. Rank 5.

A side is one contender at one size on one loop and lives in a process of its own; the sides of one
run take turns, round by round. See docs/explanation/how-we-benchmark.md.
"""
