"""The distributed purgatory: operations and events in, outcomes out. Rank 5."""
