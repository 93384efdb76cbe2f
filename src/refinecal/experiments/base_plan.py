"""What the plans of both experiments share: JSON, a key of their content, and how they may grow."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, fields
from typing import Any, ClassVar, Self

VERSION = 1  # of the protocol: units of different versions are not put into one table


def digest(text: str) -> str:
    """Return the SHA-256 sum of a text."""
    return hashlib.sha256(text.encode()).hexdigest()


class BasePlan:
    """All that decides what an experiment computes, but not how it is run."""

    __slots__ = ()
    KIND: ClassVar[str]
    MORE: ClassVar[str]  # that a run can get
    NAMED: ClassVar[dict[str, tuple[str, str]]]  # what a user names: its field and its option
    GROWING: ClassVar[tuple[str, ...]]  # numbers that a larger plan may increase, and
    SHRINKING: ClassVar[tuple[str, ...]] = ()  # those that it may decrease
    OPTIONS: ClassVar[dict[str, str]] = {}  # of the command, by the fields that they set
    version: int

    @property
    def key(self) -> str:
        """Return what two plans share if they compute the same, wherever their data are."""
        return digest(json.dumps(self._content(), sort_keys=True))[:16]

    def losses(self, other: Self) -> list[str]:
        """Return in words what ``other`` leaves out or computes differently; nothing if it has all, or more.

        Training runs depend only on their key, so a larger plan changes none that are planned already, and
        the order does not matter.
        """
        mine, theirs = self._content(), other._content()
        return [
            f"{self.OPTIONS.get(name, name)}: {_format(mine[name])}, now {_format(theirs[name])}"
            for name in mine
            if name not in ("sources", "content")
            and not self._has_all(name, mine[name], theirs[name])
        ] + self._lost_data(other)

    def _has_all(self, name: str, old: Any, new: Any) -> bool:
        """Tell whether a plan with a new value of a field computes all that one with the old value does."""
        if name in self.GROWING:
            return bool(old <= new)
        if name in self.SHRINKING:
            return bool(old >= new)
        if name in (field for field, _ in self.NAMED.values()):
            return set(old) <= set(new)
        return bool(old == new)

    def _lost_data(self, other: Self) -> list[str]:
        """Return in words which data ``other`` leaves out, or has changed."""
        raise NotImplementedError

    def _content(self) -> dict[str, Any]:
        """Return all fields except where the data are."""
        raise NotImplementedError

    def to_json(self) -> str:
        """Return the plan as text; that of tables does not name its kind."""
        kind = {} if self.KIND == "tabular" else {"kind": self.KIND}
        return json.dumps({**kind, **asdict(self)}, indent=1, ensure_ascii=False) + "\n"  # type: ignore[call-overload]

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the plan that :meth:`to_json` wrote."""
        read = json.loads(text)
        known = {each.name for each in fields(cls)}  # type: ignore[arg-type]
        if (
            isinstance(read, dict)
            and read.pop("kind", "tabular") == cls.KIND
            and set(read) == known
        ):
            return cls(**read)
        wrong = sorted(set(read) ^ known) if isinstance(read, dict) else "not an object"
        raise ValueError(
            f"this is not a plan of the {cls.KIND} experiment of this version of refinecal ({wrong}): use "
            "the version that wrote it"
        )

    def _check_least(self, least: dict[str, int]) -> None:
        """Raise if a number is too small, or the version is another."""
        for name, low in least.items():
            value = getattr(self, name)
            if value is not None and value < low:
                raise ValueError(f"{name} is {value}: it must be at least {low}")
        if self.version != VERSION:
            raise ValueError(
                f"the plan has version {self.version} of the protocol, but this refinecal follows version "
                f"{VERSION}: use the refinecal that made it, or begin a new run"
            )

    def _check_names(self, name: str, values: Any) -> None:
        """Raise if there are no names, or one is repeated."""
        if not values:
            raise ValueError(f"{name} is empty: an experiment needs at least one")
        again = sorted({value for value in values if list(values).count(value) > 1})
        if again:
            raise ValueError(
                f"{name} has {', '.join(again)} more than once: each name must be unique"
            )


def _format(value: Any) -> str:
    if value is None:
        return "not given"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
