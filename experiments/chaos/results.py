"""The file of results: a JSON object a line for each run, which `--resume` goes on with."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class RunKey:
    """What distinguishes a run from the others of a file."""

    scenario: str
    seed: int
    peers: int
    minutes: float
    timing: str
    dispatch: str

    def command(self) -> str:
        """The command that repeats this run."""
        more = f"--minutes {self.minutes:g} --timing {self.timing} --dispatch {self.dispatch}"
        return f"ringmq bench chaos {self.scenario} --seed {self.seed} --peers {self.peers} {more}"


@dataclass(frozen=True, slots=True)
class RunResult:
    """The outcome of a run, as it is stored."""

    key: RunKey
    counts: Mapping[str, int]
    """Violations by promise."""
    lines: tuple[str, ...] = ()
    figures: Mapping[str, float] = field(default_factory=dict)
    kept: str = ""
    """The folder of logs, data and history, if the run was kept."""
    failure: str = ""
    """Why the run could not be carried out."""

    @property
    def is_clean(self) -> bool:
        return not self.counts and not self.failure

    def summary(self) -> str:
        """One line."""
        key = self.key
        head = f"{key.scenario} seed {key.seed}, {key.peers} peers, {key.dispatch}"
        if self.failure:
            return f"{head}: not carried out: {self.failure}"
        figures = ", ".join(f"{name} {value:g}" for name, value in self.figures.items())
        broken = ", ".join(f"{count} {name}" for name, count in self.counts.items())
        return f"{head}: {'VIOLATED: ' + broken if broken else 'all promises hold'} ({figures})"


def load_results(file: Path) -> dict[RunKey, RunResult]:
    """The results of a file; none if it does not exist. A last line that was cut off by a crash does not count.

    Raises ValueError, with the line, if another line is no result.
    """
    if not file.exists():
        return {}
    found = {}
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
    for number, line in enumerate(lines, 1):
        try:
            result = _result_of(json.loads(line))
        except (ValueError, TypeError, KeyError):
            if number == len(lines) and not line.endswith("\n"):
                break
            raise ValueError(f"{file}:{number}: a line must be a result of bench chaos, got {line[:60]!r}") from None
        found[result.key] = result
    return found


def append_result(file: Path, result: RunResult) -> None:
    """Add a line."""
    with file.open("a", encoding="utf-8") as out:
        out.write(json.dumps(asdict(result)) + "\n")


def _result_of(values: dict[str, Any]) -> RunResult:
    return RunResult(**{**values, "key": RunKey(**values["key"]), "lines": tuple(values["lines"])})
