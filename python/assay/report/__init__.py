"""What a run shows to people: tables in the terminal, and one HTML file."""
