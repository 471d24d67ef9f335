"""Run the examples of the documentation and insert their output and figures below them.

A page is a Markdown file. Its Python blocks share one namespace and run from top to bottom in an
empty folder. The output of a block is inserted below it: what it prints, and every picture that it
saves in the folder or leaves open in pyplot. A comment above a block changes this:

    <!-- not run: reason -->    shown, not run
    <!-- saved as: name.py -->  written to a file of this name, not run
    <!-- run -->                a block of shell commands that is run too

A warning is an error, as in the tests. A gallery script is treated as a page with one block.
"""

from __future__ import annotations

import ast
import contextlib
import io
import os
import re
import subprocess
import sys
import traceback
import warnings
from pathlib import Path
from typing import Any, NamedTuple

BLOCK = re.compile(
    r"(?:<!-- (?P<mark>not run|saved as|run)(?:: (?P<words>[^>]+?))? -->\n)?"
    r"^```(?P<language>python|sh)\n(?P<code>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
PICTURES = {".svg", ".png"}


class ExampleFailed(Exception):
    """An example of a page did not run."""


class Output(NamedTuple):
    """What a block printed, and the pictures that it saved."""

    printed: str
    pictures: tuple[Path, ...]


class Runner:
    """Runs the blocks of one page in `folder`, an empty folder that no other page uses."""

    def __init__(self, page: str, folder: Path):
        self.page, self.folder, self.count = page, folder, 0
        self.namespace: dict[str, Any] = {"__name__": "__page__"}
        self.seen: dict[Path, int] = {}
        folder.mkdir(parents=True, exist_ok=True)

    def python(self, code: str) -> Output:
        """Execute a block; its pictures are the files that it saved or, if none, open figures."""
        self.count += 1
        printed = io.StringIO()
        with contextlib.chdir(self.folder), contextlib.redirect_stdout(printed):
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                try:
                    exec(compile(code, f"{self.page} block {self.count}", "exec"), self.namespace)
                except Exception as error:
                    raise ExampleFailed(f"{self.page}:\n{traceback.format_exc()}") from error
            saved = self._new_pictures() or self._open_figures()
            self._close_figures()
        return Output(printed.getvalue(), tuple(saved))

    def shell(self, code: str) -> Output:
        """Run commands with the scripts of this Python first on the path."""
        scripts = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", "-euc", code],
            cwd=self.folder,
            capture_output=True,
            text=True,
            env={**os.environ, "PATH": scripts, "COLUMNS": "100", "NO_COLOR": "1"},
        )
        if done.returncode:
            raise ExampleFailed(f"{self.page}: {code}{done.stdout}{done.stderr}")
        return Output(done.stdout, tuple(self._new_pictures()))

    def _new_pictures(self) -> list[Path]:
        now = {p: p.stat().st_mtime_ns for p in self.folder.iterdir() if p.suffix in PICTURES}
        fresh = sorted((time, path) for path, time in now.items() if self.seen.get(path) != time)
        self.seen = now
        return [path for _, path in fresh]

    def _open_figures(self) -> list[Path]:
        if "matplotlib.pyplot" not in sys.modules:
            return []
        import matplotlib.pyplot as plt

        for number in plt.get_fignums():
            plt.figure(number).savefig(self.folder / f"block-{self.count}-{number}.svg")
        return self._new_pictures()

    def _close_figures(self) -> None:
        if "matplotlib.pyplot" in sys.modules:
            import matplotlib.pyplot as plt

            plt.close("all")


def run_page(text: str, page: str, folder: Path, pictures: Path) -> str:
    """The page with the output of its blocks; pictures go to the folder `pictures`."""
    runner = Runner(page, folder)

    def with_output(block: re.Match[str]) -> str:
        mark, code = block["mark"], block["code"]
        if mark == "saved as":
            (folder / block["words"]).write_text(code)
            title = f'```python title="{block["words"]}"\n'
            return block[0].partition("-->\n")[2].replace("```python\n", title, 1)
        if mark == "not run" or (block["language"] == "sh" and mark != "run"):
            return block[0]
        output = runner.python(code) if block["language"] == "python" else runner.shell(code)
        return block[0].replace("<!-- run -->\n", "") + as_markdown(output, page, pictures)

    return BLOCK.sub(with_output, text)


def run_blocks(text: str) -> list[str]:
    """The code of a page's Python blocks that are run, here or later as a saved file.

    A block marked "not run: needs …" counts too: a test runs it where the package is installed.
    """

    def run(block: re.Match[str]) -> bool:
        return block["mark"] != "not run" or (block["words"] or "").startswith("needs ")

    blocks = [block for block in BLOCK.finditer(text) if block["language"] == "python"]
    return [block["code"] for block in blocks if run(block)]


def run_script(
    path: Path, folder: Path, pictures: Path, run: bool = True
) -> tuple[str, str, str | None]:
    """A gallery script as (title, page in Markdown, name of its first picture)."""
    source = path.read_text()
    title, _, words = (ast.get_docstring(ast.parse(source)) or path.stem).partition("\n")
    page = f"gallery/{path.stem}.md"
    output = Runner(page, folder).python(source) if run else Output("", ())
    first = f"{_slug(page)}-{output.pictures[0].name}" if output.pictures else None
    code = source.split('"""', 2)[2].strip()
    text = f"# {title.rstrip('.')}\n\n{words.strip()}\n\n```python\n{code}\n```"
    return title.rstrip("."), text + as_markdown(output, page, pictures) + "\n", first


def as_markdown(output: Output, page: str, pictures: Path) -> str:
    """What a block printed and drew as Markdown; pictures are copied to the folder `pictures`."""
    pictures.mkdir(parents=True, exist_ok=True)
    up = "../" * page.count("/")
    text = ""
    if output.printed.strip():
        printed = output.printed.rstrip()
        text += f'\n\n<div class="output" markdown>\n\n```text\n{printed}\n```\n\n</div>'
    for path in output.pictures:
        name = f"{_slug(page)}-{path.name}"
        (pictures / name).write_bytes(path.read_bytes())
        title = path.stem.replace("-", " ").replace("_", " ")
        text += f"\n\n![{title}]({up}{pictures.name}/{name})"
    return text


def _slug(page: str) -> str:
    return page.removesuffix(".md").replace("/", "-")
