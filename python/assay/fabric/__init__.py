"""InfiniBand fabrics: topology, forwarding tables, routes, schedules and the conflicts between them."""

from assay.fabric.routes import Routes
from assay.fabric.tables import ForwardingTables
from assay.fabric.topology import Fabric

__all__ = ["Fabric", "ForwardingTables", "Routes"]
