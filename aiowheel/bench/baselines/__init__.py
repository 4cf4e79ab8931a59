"""Small implementations of other designs, the baselines of the purgatory's measurements. Rank 5.

All have the interface `Parking` and the same operation class; all are plain Python.
"""
