"""A network's capacities from what was measured, as a platform that SimGrid simulates.

``course`` decides which round of experiments comes next, ``fit`` turns the rounds into capacities with their
intervals, ``platform`` writes them as XML, ``compare`` holds the simulated rounds against the measured ones.
Nothing here starts anything: rounds are asked for and answered through a generator, so that the same course
runs on a cluster, in the simulator, and against a network planted in a test.
"""
