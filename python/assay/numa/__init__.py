"""NUMA profiles: where a program's memory lies, who touches it first, who uses it from which node."""
