"""What goes wrong, as exceptions, and what operators report of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any


class RematError(Exception):
    """The model or the request is refused; says what was wrong, where, and what to do."""


class BudgetError(RematError):
    """The budget can't be met.

    Attributes:
        minimum_peak: the lowest step peak that was found, in bytes; 0 where none was looked for.
    """

    def __init__(self, message: str, minimum_peak: int = 0) -> None:
        super().__init__(message)
        self.minimum_peak = minimum_peak

    def __reduce__(self) -> tuple[type[BudgetError], tuple[str, int]]:
        return type(self), (str(self), self.minimum_peak)


def in_python(message: str) -> str:
    """Options as Python has them: messages come from where they have the tool's names."""
    return re.sub(r"--([a-z][a-z-]*)", lambda option: option[1].replace("-", "_"), message)


def error_of(record: Mapping[str, Any]) -> BaseException:
    """The exception for the record of an error."""
    message = in_python(record["message"])
    kind = record["kind"]
    if kind == "budget":
        return BudgetError(message, record["minimum_peak"])
    if kind == "value":
        return ValueError(message)
    if kind == "interrupted":
        return KeyboardInterrupt()
    return RematError(message)
