"""Errors that the command prints as one line.

Each says what was attempted, on what, and what to do next. Anything else that is raised is a bug and shows its
traceback.
"""


class FleetError(Exception):
    """The work failed: exit code 1."""


class UsageError(FleetError):
    """The arguments make no sense: exit code 2."""


class DamagedObject(FleetError):
    """An object of the store cannot be read.

    `paths` names the objects, relative to the store.
    """

    def __init__(self, message: str, paths: list[str]) -> None:
        super().__init__(message)
        self.paths = paths
