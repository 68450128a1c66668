"""Objects that own processes end them with their `with` block."""

from __future__ import annotations

import abc
from types import TracebackType
from typing import Self


class Closing(abc.ABC):
    """A context manager that closes itself."""

    @abc.abstractmethod
    def close(self) -> None:
        """Gives back what it holds; may be called twice."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
