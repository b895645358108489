"""Remedies for the conflicts of a fabric: another schedule, another order of ranks, other forwarding tables, and the
fabric as Slurm's topology."""
