"""Build the documentation site: run every example, add the generated pages, check all links.

    python tools/site_build.py OUT            everything; a warning is an error
    python tools/site_build.py OUT --quick    without running examples, to check the text
    python tools/site_build.py OUT --only howto/labels    run only the examples of these pages

The pages of `docs/` are copied to a temporary folder, their examples are run there
(`site_examples`), pages that are generated from the source are added (`site_pages`), MkDocs turns
everything into HTML, and `site_check` follows every link. Nothing is fetched over the network,
neither by the build nor by a reader's browser.
"""

from __future__ import annotations

import os

# One thread, as in the tests; must be set before JAX is imported.
os.environ.update(NPROC="1", OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1", JAX_PLATFORMS="cpu")
os.environ.update(MPLBACKEND="agg", DISABLE_MKDOCS_2_WARNING="true", NO_MKDOCS_2_WARNING="true")

import argparse
import logging
import re
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from attnlens.runs.engines import cache

# The persistent compilation cache of the workers; also set before JAX is imported.
os.environ.update(cache.settings(cache.usable_folder()))

import site_check
import site_examples
import site_pages
import site_stored

ROOT = Path(__file__).parent.parent

# Listed pages that do not exist are left out; pages of docs/ not listed here go to "In depth".
NAVIGATION: dict[str, list[str]] = {
    "Start here": ["index.md", "start/practitioner.md", "start/researcher.md", "glossary.md"],
    "The lenses": ["theory.md", "lens-a.md", "lens-b.md", "lens-c.md"],
    "How to": [
        "howto/attention-or-not.md",
        "howto/labels.md",
        "howto/order.md",
        "howto/transfer.md",
        "howto/flat.md",
        "howto/inspect.md",
        "howto/own-claim.md",
        "howto/own-world.md",
        "howto/publish-a-lens.md",
        "howto/paper.md",
        "cluster.md",
    ],
    "In depth": [
        "advise.md",
        "files.md",
        "estimators.md",
        "torch.md",
        "pretrained.md",
        "worlds.md",
        "attention.md",
        "networks.md",
        "data.md",
        "exchangeability.md",
        "representation.md",
        "samples.md",
        "transfer.md",
        "landscape.md",
    ],
    "Gallery": [],
    "How it works": ["how-it-works.md", "statistics.md", "numerics.md", "benchmarks.md"],
    "Reference": [],
}


LITERATURE = "references.md"

# Replacements (pattern → text) in every page. A link to a source file becomes a link to the page
# generated from it; text between the comments `repository` and `/repository`, which is for readers
# of the repository, is removed.
LINKS_IN_SITE = {
    r"\]\(gallery/\)": "](gallery/index.md)",
    r"(\]\((?:\.\./)*gallery/\w+)\.py\)": r"\1.md)",
    r"\]\(\.\./src/attnlens/__init__\.pyi\)": "](reference/attnlens.md)",
    r"\]\(\.\./src/attnlens/cli/commands\.py\)": "](reference/command-line.md)",
    r"(?s)\s*<!-- repository -->.*?<!-- /repository -->": "",
}


def stage(docs: Path, only: str | None) -> dict[str, list[str]]:
    """Write all sources of the site to `docs` and return the navigation.

    Examples are run on pages whose name contains `only`, and on no page when it is None.
    """
    shutil.copytree(ROOT / "docs", docs, ignore=shutil.ignore_patterns("*.py", "report.png"))
    work, figures = docs.parent / "work", docs / "figures"
    for path in sorted(docs.rglob("*.md")):
        page = path.relative_to(docs).as_posix()
        text = path.read_text()
        for mark, make in GENERATED.items():
            text = text.replace(mark, make()) if mark in text else text
        for link, link_in_site in LINKS_IN_SITE.items():
            text = re.sub(link, link_in_site, text)
        text = site_stored.with_figures(text, page, figures)
        if only is not None and only in page:
            text = timed(page, site_examples.run_page, text, page, work / page, figures)
        path.write_text(text if isinstance(text, str) else "")
    navigation = {section: [*pages] for section, pages in NAVIGATION.items()}
    listed = {LITERATURE, *(page for pages in navigation.values() for page in pages)}
    written = {path.relative_to(docs).as_posix() for path in docs.rglob("*.md")}
    navigation["In depth"] += sorted(written - listed)
    navigation = {s: [p for p in pages if p in written] for s, pages in navigation.items()}
    navigation["Gallery"] = stage_gallery(docs, work, figures, only)
    navigation["Reference"] = [*stage_reference(docs), LITERATURE]
    return navigation


GENERATED = {
    "<!-- generated: chain -->": site_pages.picture,
    "<!-- generated: roles -->": site_pages.roles,
}


def stage_gallery(docs: Path, work: Path, figures: Path, only: str | None) -> list[str]:
    (docs / "gallery").mkdir(exist_ok=True)
    entries = []
    for script in sorted((ROOT / "docs" / "gallery").glob("*.py")):
        folder, run = work / script.stem, only is not None and only in f"gallery/{script.stem}"
        title, text, picture = timed(
            script.name, site_examples.run_script, script, folder, figures, run
        )
        if run and title and picture is None:
            FAILED.append(f"{script} must save a figure; it saved none.")
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


FAILED: list[str] = []  # messages of pages whose examples failed; the other pages still run


def timed(name: str, run: Callable[..., Any], *arguments: Any) -> Any:
    """`run(*arguments)`; prints its time on standard error if it took more than a second."""
    before = time.perf_counter(), processor_seconds()
    try:
        result = run(*arguments)
    except site_examples.ExampleFailed as error:
        FAILED.append(str(error))
        result = "", "", None
    wall, cpu = time.perf_counter() - before[0], processor_seconds() - before[1]
    if wall > 1:
        print(f"{name}: {wall:.0f} s, {cpu:.0f} s of processor time", file=sys.stderr, flush=True)
    return result


def processor_seconds() -> float:
    usage = [resource.getrusage(w) for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(part.ru_utime + part.ru_stime for part in usage)


def html(docs: Path, out: Path, navigation: dict[str, list[str]]) -> None:
    """Build the HTML with MkDocs in strict mode: a warning ends the build."""
    from mkdocs.commands.build import build  # pyright: ignore[reportMissingImports] (in the extra docs)
    from mkdocs.config import load_config  # pyright: ignore[reportMissingImports] (in the extra docs)

    logging.basicConfig(format="%(levelname)s: %(message)s")  # shows the warnings
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
    parser.add_argument("out", type=Path, help="folder for the site; its contents are replaced")
    parser.add_argument("--quick", action="store_true", help="do not run the examples")
    parser.add_argument(
        "--only", default="", help="run only the examples of pages with this in the name"
    )
    parser.add_argument("--keep", type=Path, help="keep the sources of the site in this new folder")
    options = parser.parse_args()
    import matplotlib

    matplotlib.rcParams["svg.hashsalt"] = "attnlens"  # the same figure gives the same file
    with tempfile.TemporaryDirectory() as folder:
        docs = (options.keep or Path(folder)).resolve() / "docs"
        navigation = stage(docs, None if options.quick else options.only)
        if FAILED:
            raise SystemExit("\n".join(FAILED))
        html(docs, options.out.resolve(), navigation)
    site_check.main(options.out)
    print(f"{options.out / 'index.html'}: {processor_seconds():.0f} s of processor time")


if __name__ == "__main__":
    main()
