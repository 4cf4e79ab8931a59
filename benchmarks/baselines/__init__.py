"""Small implementations of other designs, the baselines of the purgatory's measurements.

All have the interface `Parking` and the same operation class; all are plain Python.
"""
