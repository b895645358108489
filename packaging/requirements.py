"""Prints the Python packages of pyproject.toml that a purpose needs, one a line, for pip.

    requirements.py run          the dependencies, and an MPI for machines that have none
    requirements.py test         what the tests need besides

The list is in pyproject.toml alone.
"""

import pathlib
import sys
import tomllib


def main() -> None:
    project = tomllib.loads((pathlib.Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    requirements = {"run": project["dependencies"] + extras["mpi"], "test": extras["test"]}
    print("\n".join(requirements[sys.argv[1]]))


if __name__ == "__main__":
    main()
