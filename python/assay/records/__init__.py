"""Records: their schema, the run directory that keeps them, units and statistics."""
