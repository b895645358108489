"""What removes the conflicts of a fabric: another schedule, another order of ranks, other forwarding tables."""
