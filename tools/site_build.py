"""Build the documentation site: run every example, generate what is generated, and check it.

    python tools/site_build.py OUT            everything, warnings are errors
    python tools/site_build.py OUT --quick    the same without running examples, to look at words
    python tools/site_build.py OUT --only howto/labels    with those of some pages only

The pages of `docs/` are copied to a folder of their own, their examples are run there
(`site_examples`), pages that come from the source are added (`site_pages`), MkDocs makes HTML of it
all, and `site_check` follows every link. Nothing is fetched, neither now nor by a reader's browser.
"""

from __future__ import annotations

import os

# Before JAX is imported: one thread, as in the tests.
os.environ.update(NPROC="1", OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1", JAX_PLATFORMS="cpu")
os.environ.update(MPLBACKEND="agg", DISABLE_MKDOCS_2_WARNING="true", NO_MKDOCS_2_WARNING="true")

import argparse
import logging
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from attnlens.engine import cache

# Compiled programs are kept on disk, as those of workers are; also before JAX is imported.
os.environ.update(cache.settings(cache.default_folder()))

import site_check
import site_examples
import site_pages

ROOT = Path(__file__).parent.parent

# Pages that do not exist are left out; a page of docs/ that is not named here goes to "In depth".
NAVIGATION: dict[str, list[str]] = {
    "Start here": ["index.md", "start/practitioner.md", "start/researcher.md"],
    "The two lenses": ["lens-a.md", "lens-b.md"],
    "How to": [
        "howto/attention-or-not.md", "howto/labels.md", "howto/order.md", "howto/transfer.md",
        "howto/flat.md", "howto/own-claim.md", "cluster.md",
    ],
    "In depth": [
        "advise.md", "files.md", "estimators.md", "torch.md", "pretrained.md", "worlds.md",
        "attention.md", "networks.md", "data.md", "exchangeability.md", "representation.md",
        "samples.md", "transfer.md", "landscape.md",
    ],
    "Gallery": [],
    "How it works": ["how-it-works.md", "statistics.md", "numerics.md", "benchmarks.md"],
    "Reference": [],
}  # fmt: skip


def stage(docs: Path, only: str | None) -> dict[str, list[str]]:
    """Write all sources of the site to `docs`; the navigation that they make.

    Examples run on pages whose name contains `only`, and on none where it is None.
    """
    shutil.copytree(ROOT / "docs", docs, ignore=shutil.ignore_patterns("*.py", "report.png"))
    work, figures = docs.parent / "work", docs / "figures"
    for path in sorted(docs.rglob("*.md")):
        page = path.relative_to(docs).as_posix()
        text = path.read_text()
        for mark, make in GENERATED.items():
            text = text.replace(mark, make()) if mark in text else text
        if only is not None and only in page:
            text = told(page, site_examples.run_page, text, page, work / page, figures)
        path.write_text(text if isinstance(text, str) else "")
    navigation = {section: [*pages] for section, pages in NAVIGATION.items()}
    named = {page for pages in navigation.values() for page in pages}
    written = {path.relative_to(docs).as_posix() for path in docs.rglob("*.md")}
    navigation["In depth"] += sorted(written - named)
    navigation = {s: [p for p in pages if p in written] for s, pages in navigation.items()}
    navigation["Gallery"] = stage_gallery(docs, work, figures, only)
    navigation["Reference"] = stage_reference(docs)
    return navigation


GENERATED = {
    "<!-- generated: chain -->": site_pages.picture,
    "<!-- generated: roles -->": site_pages.roles,
}


def stage_gallery(docs: Path, work: Path, figures: Path, only: str | None) -> list[str]:
    (docs / "gallery").mkdir(exist_ok=True)
    entries = []
    for script in sorted((ROOT / "docs" / "gallery").glob("*.py")):
        place, run = work / script.stem, only is not None and only in f"gallery/{script.stem}"
        title, text, picture = told(
            script.name, site_examples.run_script, script, place, figures, run
        )
        if run and title and picture is None:
            FAILED.append(f"{script} must save a figure, and saved none.")
        (docs / "gallery" / f"{script.stem}.md").write_text(text)
        entries.append((script.stem, title, picture))
    (docs / "gallery" / "index.md").write_text(site_pages.gallery(entries))
    return ["gallery/index.md", *(f"gallery/{stem}.md" for stem, _, _ in entries)]


def stage_reference(docs: Path) -> list[str]:
    (docs / "reference").mkdir()
    pages = []
    for package in site_pages.packages():
        name = package.removeprefix("attnlens.")
        (docs / "reference" / f"{name}.md").write_text(site_pages.reference(package))
        pages.append(f"reference/{name}.md")
    (docs / "reference" / "command-line.md").write_text(site_pages.command_line())
    return [*pages, "reference/command-line.md"]


FAILED: list[str] = []  # what went wrong on a page; the others run all the same


def told(name: str, run: Callable[..., Any], *arguments: Any) -> Any:
    """`run(*arguments)`, with its seconds on standard error where it took any."""
    before = time.perf_counter(), processor_seconds()
    try:
        made = run(*arguments)
    except site_examples.ExampleFailed as error:
        FAILED.append(str(error))
        made = "", "", None
    wall, cpu = time.perf_counter() - before[0], processor_seconds() - before[1]
    if wall > 1:
        print(f"{name}: {wall:.0f} s, {cpu:.0f} of the processor", file=sys.stderr, flush=True)
    return made


def processor_seconds() -> float:
    used = [resource.getrusage(w) for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def html(docs: Path, out: Path, navigation: dict[str, list[str]]) -> None:
    """MkDocs, strictly: a warning ends the build."""
    from mkdocs.commands.build import build  # pyright: ignore[reportMissingImports]
    from mkdocs.config import load_config  # pyright: ignore[reportMissingImports]

    logging.basicConfig(format="%(levelname)s: %(message)s")  # what a strict build stumbles over
    nav = [{section: pages} for section, pages in navigation.items() if pages]
    config = load_config(
        str(ROOT / "mkdocs.yml"), docs_dir=str(docs), site_dir=str(out), nav=nav, strict=True
    )
    config.plugins.on_startup(command="build", dirty=False)
    try:
        build(config)
    finally:
        config.plugins.on_shutdown()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("out", type=Path, help="folder for the site; what it holds is replaced")
    parser.add_argument("--quick", action="store_true", help="leave the examples alone")
    parser.add_argument("--only", default="", help="run those of pages whose name contains this")
    parser.add_argument("--keep", type=Path, help="keep the sources of the site in this new folder")
    given = parser.parse_args()
    import matplotlib

    matplotlib.rcParams["svg.hashsalt"] = "attnlens"  # the same figure gives the same file
    with tempfile.TemporaryDirectory() as folder:
        docs = (given.keep or Path(folder)).resolve() / "docs"
        navigation = stage(docs, None if given.quick else given.only)
        if FAILED:
            raise SystemExit("\n".join(FAILED))
        html(docs, given.out.resolve(), navigation)
    site_check.main(given.out)
    print(f"{given.out / 'index.html'}: {processor_seconds():.0f} s of the processor")


if __name__ == "__main__":
    main()
