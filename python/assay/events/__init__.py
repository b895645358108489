"""Event building: what a run's records say of it, and the search for the parameters that suit a network."""
