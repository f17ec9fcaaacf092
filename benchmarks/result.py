"""What a benchmark prints and leaves behind: figures, and the ratios between them."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

RESULTS = Path(__file__).parent / "results"


@dataclass
class Result:
    """The outcome of one benchmark.

    ``figures`` maps what was measured, unit included (``"listing, keys/s"``), to its value; ``ratios`` maps a
    comparison to a quotient of two figures of this run.
    """

    name: str
    figures: dict[str, float] = field(default_factory=dict)
    ratios: dict[str, float] = field(default_factory=dict)

    def finish(self) -> None:
        """Print the table and write ``results/NAME.json``. Call it once, at the end."""
        width = max(map(len, [*self.figures, *self.ratios]))
        for what, value in self.figures.items():
            print(f"{what:<{width}}  {value:>14,.4g}")
        print("-" * (width + 16))
        for what, value in self.ratios.items():
            print(f"{what:<{width}}  {value:>13,.3g}x")
        self.write()

    def write(self) -> None:
        """Write ``results/NAME.json`` alone, for a benchmark that has printed a table of its own."""
        RESULTS.mkdir(exist_ok=True)
        content = {"machine": machine(), "figures": self.figures, "ratios": self.ratios}
        path = RESULTS / f"{self.name}.json"
        path.write_text(json.dumps(content, indent=2) + "\n")
        print(f"\nwritten: {path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path}")


def machine() -> dict[str, str | int | None]:
    """Return what the figures depend on; nothing that names the machine itself."""
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "airflow": version("apache-airflow"),
    }
