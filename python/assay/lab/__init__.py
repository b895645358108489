"""A virtual cluster of network namespaces on this machine, for trying Assay and for tests with known rates."""

from assay.lab.cluster import Lab, take_down
from assay.lab.state import Fault, Rates

__all__ = ["Fault", "Lab", "Rates", "take_down"]
