"""Records: what engines emit, what a run directory keeps, and the units in which both speak."""
