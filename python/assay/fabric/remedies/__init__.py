"""Remedies for the conflicts of a fabric. A schedule is the order in which each rank sends to all others, one
destination in each step. A link between switches
that carries n flows of a step has n - 1 conflicts. The remedies are another
schedule, another order of ranks, other forwarding tables, and the fabric as Slurm's topology."""
