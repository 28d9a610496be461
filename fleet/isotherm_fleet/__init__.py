"""Queries, compaction and advice over the rollups of many hosts.

    import isotherm_fleet
    fleet = isotherm_fleet.open("s3://bucket/isotherm")
    fleet.query("wss", service="redis*", since="7d").df()

`contract` has the names and columns of a store, `manifest` decides what counts, `store` does I/O, `sqlfile` has the
queries, `duck` and `fleet` answer them, `compact` joins objects, `advise` draws conclusions, `cli` is the command.
Spark's side is in `spark/` of the repository and uses the same manifests and the same SQL.
"""

from .errors import DamagedObject, FleetError, UsageError
from .fleet import Answer, Fleet, Settings, open
from .sqlfile import queries

__all__ = ["Answer", "DamagedObject", "Fleet", "FleetError", "Settings", "UsageError", "open", "queries"]
__version__ = "0.1.0"
