"""Ways to remove the conflicts of a fabric: another schedule, another order of ranks, other forwarding tables."""
