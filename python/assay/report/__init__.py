"""Presents a run: tables in the terminal, and one HTML file."""
