"""A network's capacities from measurements, as a platform that SimGrid simulates.

``experiments`` yields the rounds of a study, ``fit`` turns the results into capacities with their intervals,
``platform`` writes them as XML, and ``compare`` compares simulated with measured rounds. This package starts no
process: a generator yields rounds and receives their results, so the same experiments run on a cluster, in the
simulator, and on a planted network in a test.
"""
