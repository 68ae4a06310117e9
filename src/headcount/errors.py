"""The one exception that headcount raises for a user's mistake; the command line exits with 2."""

from __future__ import annotations


class HeadcountError(Exception):
    """What is wrong, what was found, and what to do, in one sentence."""


class SettingError(HeadcountError):
    """A setting that is not what it should be.

    Args:
        setting: its name.
        found: what it is.
        expected: what it should be, and what to do.
        method: of which method, where that is known.
    """

    def __init__(self, setting: str, found: object, expected: str, method: str = "") -> None:
        of = f" of {method}" if method else ""
        super().__init__(f"{setting}{of} is {found!r}, expected {expected}")
        self.setting, self.found, self.expected = setting, found, expected

    def of(self, method: str) -> SettingError:
        """The same, with the name of the method that the setting is of."""
        return SettingError(self.setting, self.found, self.expected, method)


class Stopped(Exception):  # noqa: N818
    """The user asked to stop, and what was done so far is saved.

    Args:
        where: how far it went.
        further: how to go on.
    """

    def __init__(self, where: str, further: str = "the same command with --resume goes on") -> None:
        super().__init__(f"{where}; {further}")
        self.where = where
