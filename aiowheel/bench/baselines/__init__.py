"""Other people's designs, small and honest: what the purgatory is measured against. Rank 5.

All share one interface, `Parking`, and the same operation class; all are plain Python.
"""
