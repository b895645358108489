"""NUMA profiles: the nodes of a program's memory, the threads that touch it first, and the nodes that use it."""
