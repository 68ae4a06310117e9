"""The one exception that headcount raises for a user's mistake; the command line exits with 2."""


class HeadcountError(Exception):
    """What is wrong, what was found, and what to do, in one sentence."""


class Stopped(Exception):  # noqa: N818
    """The user asked to stop, and what was done so far is saved.

    Args:
        where: how far it went.
        further: how to go on.
    """

    def __init__(self, where: str, further: str = "the same command with --resume goes on") -> None:
        super().__init__(f"{where}; {further}")
        self.where = where
