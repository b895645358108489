"""Measurements: starts engines one after another, keeps their records in a run, and concludes the run."""
