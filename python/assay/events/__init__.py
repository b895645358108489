"""Event building: reads the records of its runs, and searches the parameters with which a network carries it best."""
