"""Assay tells whether a cluster is fit for its purpose and, if it is not, why.

Engines (C++) measure and emit records; this package launches them, judges and explains what they
measured, and shows it. Data flows one way: measure, record, judge, explain, show.
"""

__version__ = "0.1.0"
