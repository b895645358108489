"""Starts engines: finds the executables, builds the launchers' command lines, supervises the processes and ends
them."""
