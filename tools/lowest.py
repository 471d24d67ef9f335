"""Print the lower bounds of pyproject.toml as exact pins, for `pip install -c`.

    python tools/lowest.py > lowest.txt && pip install ".[test]" -c lowest.txt

Tools that only check the source (linter, type checker, hooks) are not pinned.
"""

import re
import tomllib
from pathlib import Path

CHECKERS = {"ruff", "pyright", "pre-commit"}


def main() -> None:
    path = Path(__file__).parent.parent / "pyproject.toml"
    project = tomllib.loads(path.read_text())["project"]
    for requirement in (*project["dependencies"], *project["optional-dependencies"]["test"]):
        bound = re.fullmatch(r"([\w.-]+)(?:\[.*\])?>=([\w.]+)", requirement)
        if bound is None:
            raise SystemExit(f"expected a requirement of the form name>=version, got {requirement}")
        if bound[1] not in CHECKERS:
            print(f"{bound[1]}=={bound[2]}")


if __name__ == "__main__":
    main()
