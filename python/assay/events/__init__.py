"""Event building: reads the records of its runs, and searches for the parameters that give the best throughput."""
