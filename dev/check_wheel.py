"""Build the wheel, install it into an empty environment, and look at it there as Airflow would."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
LOCK = REPOSITORY / "requirements" / "dev.txt"

WITHOUT_EXTRAS = """
import sys
import airflow_state_watchers, airflow_state_watchers.get_provider_info
loaded = [name for name in sys.modules if name.partition(".")[0] == "airflow"]
assert not loaded, f"importing the package root loads {loaded[:5]}"
assert "site-packages" in airflow_state_watchers.__file__, airflow_state_watchers.__file__
"""

WITH_EXTRAS = """
import airflow_state_watchers, airflow_state_watchers.testing
for name in airflow_state_watchers.__all__:
    getattr(airflow_state_watchers, name)
"""


def run(*command: str | Path, cwd: Path = REPOSITORY) -> str:
    """Run a command that must succeed, and return what it wrote to its standard output."""
    home = {"AIRFLOW_HOME": str(cwd / "airflow-home")} if cwd != REPOSITORY else {}
    done = subprocess.run([*map(str, command)], cwd=cwd, env={**os.environ, **home}, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"{done.stdout}\nfailed ({done.returncode}): {' '.join(map(str, command))}")
    return done.stdout


def check_content(wheel: Path) -> None:
    """The wheel holds the package as it lies in the repository, its metadata, and nothing else."""
    inside = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    package = REPOSITORY / "airflow_state_watchers"
    wanted = {
        str(path.relative_to(REPOSITORY))
        for path in package.rglob("*")
        if path.is_file() and path.suffix != ".pyc" and "__pycache__" not in path.parts
    }
    if inside != wanted:
        sys.exit(f"{wheel.name}: missing {sorted(wanted - inside)}, not wanted {sorted(inside - wanted)}")
    licenses = [name for name in zipfile.ZipFile(wheel).namelist() if "/licenses/" in name]
    if {Path(name).name for name in licenses} != {"LICENSE", "NOTICE"}:
        sys.exit(f"{wheel.name}: its licenses are {licenses}")


def check_installed(wheel: Path, place: Path) -> None:
    """An environment with nothing but this wheel and what it asks for."""
    python = place / "env" / "bin" / "python"
    uv = Path(sys.executable).parent / "uv"
    install = (uv, "pip", "install", "--quiet", "--python", python, "--constraint", LOCK)
    run(sys.executable, "-m", "venv", "--without-pip", place / "env", cwd=place)

    run(*install, wheel, cwd=place)
    run(python, "-c", WITHOUT_EXTRAS, cwd=place)
    listed = run(python, "-m", "airflow", "providers", "list", "--output", "plain", cwd=place)
    if "airflow-provider-state-watchers" not in listed:
        sys.exit(f"airflow providers list does not show the provider:\n{listed}")

    run(*install, f"{wheel}[amazon,cncf-kubernetes]", cwd=place)
    run(python, "-c", WITH_EXTRAS, cwd=place)
    run(uv, "pip", "check", "--quiet", "--python", python, cwd=place)


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="state-watchers-wheel-") as name:
        place = Path(name)
        # The wheel is built from the sdist, so that the sdist is known to be complete.
        run(sys.executable, "-m", "hatchling", "build", "--target", "sdist", "--directory", place / "dist")
        (sdist,) = (place / "dist").glob("*.tar.gz")
        run("tar", "-xzf", sdist, "-C", place, cwd=place)
        unpacked = place / sdist.name.removesuffix(".tar.gz")
        run(
            sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", place / "dist", cwd=unpacked
        )
        (wheel,) = (place / "dist").glob("*.whl")
        check_content(wheel)
        check_installed(wheel, place)
        print(f"{wheel.name}: {wheel.stat().st_size:,} bytes; builds from the sdist, installs, imports, is listed")


if __name__ == "__main__":
    main()
