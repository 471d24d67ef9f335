"""The page of a run in a real browser: figures are drawn, hostile text stays text, and there are no
requests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import attnlens
from attnlens import verify
from attnlens.core.drawing import Map, Surface
from attnlens.core.serialise import to_plain
from attnlens.report.page import render_documents
from attnlens.report.templating import duration, minus, number
from attnlens.runs.pages import finished
from attnlens.runs.store.store import Store
from browser import SCREENS, artefact, chromium, drawn, needs_browser, opened, until, visit
from toy_claims import CLAIM, HOSTILE_TEXT

SURFACE = Surface(
    "loss", "a", "b", (0.0, 1.0, 2.0), (0.0, 1.0), ((1.0, 2.0, 4.0), (2.0, float("nan"), 8.0))
)
WEIGHTS = Map("Weights", "token", "query", (("head 1", ((0.9, 0.1), (0.4, 0.6))),))


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders with pages by name: a run, a run with hostile names, and four claims with every kind
    of view."""
    out = tmp_path_factory.mktemp("pages")
    for name in ("CLAIM", "HOSTILE"):
        verify("smoke", [f"toy_claims:{name}"], out / name, workers=2)
    paths = {name: out / name / "report.html" for name in ("CLAIM", "HOSTILE")}
    with Store.reading(out / "CLAIM") as store:
        ledger, page = finished(store)
    (entry,), (section,) = ledger["claims"], page["claims"]
    names = [f"{'AB'[i // 2]}.toy-{i}" for i in range(4)]
    views = [to_plain(SURFACE), to_plain(WEIGHTS)]
    ledger["claims"] = [{**entry, "id": name, "lens": name[0]} for name in names]
    page["claims"] = [
        {**section, "id": name, "title": f"Toy {name}", "views": views if i == 3 else []}
        for i, name in enumerate(names)
    ]
    paths["MANY"] = out / "many.html"
    paths["MANY"].write_text(render_documents(ledger, page, []))
    return paths


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as started:
        yield started


@needs_browser
def test_figures_draw_and_nothing_is_requested(pages: dict[str, Path], browser: Any):
    page, console, requests = visit(browser, pages["CLAIM"])
    assert console == []
    assert requests == [pages["CLAIM"].as_uri()]
    assert page.locator(".figure .scatterlayer .point").count() == 24
    assert page.locator(".modebar-btn[data-title*='Cloud'], .modebar-btn--logo").count() == 0
    assert page.locator("#ledger tbody tr").count() == 1
    assert page.locator(".formula math").count() == 1
    settings = page.evaluate("document.querySelector('.figure')._context")
    assert settings["plotlyServerURL"] == ""
    assert not any(settings[name] for name in ("showSendToCloud", "displaylogo", "scrollZoom"))


@needs_browser
def test_every_kind_of_view_is_drawn_when_scrolled_to_and_three_dimensions_last(
    pages: dict[str, Path], browser: Any
):
    page, console, requests = opened(
        browser, pages["MANY"], viewport={"width": 900, "height": 2400}
    )
    places = page.query_selector_all("[data-figure]")
    assert len(places) == 4 + 3
    assert page.evaluate("place => place.dataset.drawn", places[-1]) is None
    # All views of the last claim come into view at once.
    page.evaluate(
        """() => {
        window.order = [];
        new MutationObserver(changes => changes.forEach(({target}) => {
            if (target.dataset.drawn === 'done') window.order.push(target.dataset.figure);
        })).observe(document.body, {subtree: true, attributeFilter: ['data-drawn']});
        }"""
    )
    page.evaluate("() => scrollTo(0, document.body.scrollHeight)")
    for place in places[-4:]:
        drawn(page, place)
    order = [name for name in page.evaluate("window.order") if name.startswith("B-toy-3")]
    assert order == [f"B-toy-3-figure-{i}" for i in (1, 2, 4, 3)]
    kinds = "place => place._fullData.map(trace => trace.type)"
    assert [page.evaluate(kinds, place) for place in places[-3:]] == [
        ["contour"],
        ["surface"],
        ["heatmap"],
    ]
    assert page.locator(".figure .gl-container canvas").count() > 0
    assert "WebGL is not supported" not in page.inner_text("body")
    assert console == []
    assert requests == [pages["MANY"].as_uri()]


@needs_browser
def test_the_value_under_the_pointer_is_shown(pages: dict[str, Path], browser: Any):
    page, _, _ = visit(browser, pages["CLAIM"])
    box = page.locator(".figure .scatterlayer .point").nth(3).bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    until(page, "() => document.querySelector('.hoverlayer .hovertext') !== null")
    shown = page.locator(".hoverlayer .hovertext").first.text_content()
    assert shown.startswith("prediction4 → ")


@needs_browser
def test_the_ledger_is_readable_without_scripts(pages: dict[str, Path], browser: Any):
    page = browser.new_context(java_script_enabled=False).new_page()
    page.goto(pages["CLAIM"].as_uri())
    text = page.inner_text("body")
    assert "supported" in text
    assert "Standard normal draws have a mean near zero." in text
    assert "prediction: from" in text  # the text alternative of the figure


@needs_browser
def test_hostile_text_stays_text(pages: dict[str, Path], browser: Any):
    page, console, requests = visit(browser, pages["HOSTILE"])
    assert page.evaluate("window.hit") is None
    assert page.locator("img").count() == 0
    assert console == []
    assert requests == [pages["HOSTILE"].as_uri()]
    assert HOSTILE_TEXT in page.inner_text("section h2")
    # The text must also stay text inside the figure, although plotly interprets some markup.
    assert HOSTILE_TEXT in page.locator(".figure .legendtext").first.text_content()
    assert page.locator(".figure a[href]:not(.modebar-btn)").count() == 0


@needs_browser
def test_a_script_without_the_nonce_does_not_run(
    pages: dict[str, Path], browser: Any, tmp_path: Path
):
    source = pages["CLAIM"].read_text()
    broken = tmp_path / "broken.html"
    broken.write_text(source.replace("<main>", "<main><script>window.hit = 1</script>"))
    page, console, _ = opened(browser, broken)
    assert page.evaluate("window.hit") is None
    assert any("Content Security Policy" in line for line in console)


def test_hostile_text_is_escaped_in_the_source(pages: dict[str, Path]):
    source = pages["HOSTILE"].read_text()
    assert "window.hit = 1</script>" not in source
    assert "<img" not in source
    assert "&lt;/script&gt;" in source


@needs_browser
@pytest.mark.parametrize(("scheme", "width"), SCREENS)
def test_the_page_fits_the_screen(
    pages: dict[str, Path], browser: Any, width: int, scheme: str, tmp_path: Path
):
    page, _, _ = visit(
        browser, pages["MANY"], viewport={"width": width, "height": 800}, color_scheme=scheme
    )
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.screenshot(path=artefact(f"page-{scheme}-{width}.png", tmp_path), full_page=True)


@needs_browser
def test_the_filter_hides_claims_and_brings_them_back(pages: dict[str, Path], browser: Any):
    page = browser.new_page()
    page.goto(pages["CLAIM"].as_uri())
    section = page.locator("main section")
    for change, shown in (
        (lambda: page.fill("#filter [type=search]", "nothing of the kind"), False),
        (lambda: page.fill("#filter [type=search]", "TOY"), True),
        (lambda: page.uncheck("#filter [value=supported]"), False),
        (lambda: page.check("#filter [value=supported]"), True),
    ):
        change()
        assert section.is_visible() == shown


@needs_browser
def test_the_page_can_be_used_from_the_keyboard(pages: dict[str, Path], browser: Any):
    page, _, _ = opened(browser, pages["CLAIM"])
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    focusable = "a[href], input, summary"
    listed = f"[...document.querySelectorAll('{focusable}')].filter(e => e.checkVisibility())"
    # Buttons inside figures are not counted, because they appear when a figure is drawn.
    expected = page.evaluate(f"{listed}.filter(e => !e.closest('.figure')).length")
    reached = set()
    for _ in range(4 * expected):
        reached.add(page.evaluate(f"{listed}.indexOf(document.activeElement)"))
        if page.evaluate("document.activeElement.tagName") == "SUMMARY":
            page.keyboard.press("Enter")
            break
        page.keyboard.press("Tab")
    assert page.evaluate("document.querySelector('details').open")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.download") == "T-toy.csv"
    assert len(reached - {-1}) >= expected


@needs_browser
def test_the_ledger_plot_and_the_findings_need_no_script(pages: dict[str, Path], browser: Any):
    page = browser.new_context(java_script_enabled=False).new_page()
    page.goto(pages["CLAIM"].as_uri())
    assert page.locator("main .picture circle").count() == 1
    assert page.locator(".picture .control").count() == 1
    assert "Toy: supported." in page.inner_text(".findings")
    assert page.locator("#filter").is_hidden()


@needs_browser
def test_the_numbers_can_be_downloaded(pages: dict[str, Path], browser: Any):
    page = browser.new_page()
    page.goto(pages["CLAIM"].as_uri())
    page.evaluate("document.querySelector('details').open = true")
    with page.expect_download() as download:
        page.click("a[download]")
    assert download.value.suggested_filename == "T-toy.csv"
    assert Path(download.value.path()).read_text().startswith("kind,name,x,value")


@needs_browser
def test_figures_follow_the_colour_scheme(pages: dict[str, Path], browser: Any):
    page, console, _ = visit(browser, pages["CLAIM"], color_scheme="dark")
    paper = "document.querySelector('.figure')._fullLayout.paper_bgcolor"
    assert page.evaluate(paper) == "#0d1117"
    page.emulate_media(color_scheme="light")
    until(page, f"() => {paper} === '#ffffff'")
    assert console == []


def test_two_runs_side_by_side(pages: dict[str, Path]):
    from attnlens.runs.pages import write_comparison

    page = write_comparison(pages["CLAIM"].parent, pages["HOSTILE"].parent)
    source = page.read_text()
    assert page == pages["HOSTILE"].parent / "comparison.html"
    assert "not in every run" in source
    assert "<script" not in source


@needs_browser
@pytest.mark.slow
def test_every_claim_is_printed_with_its_figure(
    pages: dict[str, Path], browser: Any, tmp_path: Path
):
    page, _, _ = opened(browser, pages["MANY"])
    until(page, "() => window.Plotly !== undefined")  # Plotly is unpacked when the page is idle
    # No figure was scrolled into view before printing. Headings become the outline of the file.
    printed = page.pdf(outline=True, tagged=True)
    artefact("page.pdf", tmp_path).write_bytes(printed)
    assert printed.startswith(b"%PDF")
    for i in range(4):
        title = f"Toy {'AB'[i // 2]}.toy-{i}"
        assert title.encode() in printed or title.encode("utf-16-be") in printed
    places = page.query_selector_all("[data-figure]")
    states = [page.evaluate("place => place.dataset.drawn", place) for place in places]
    assert states == ["done"] * 7


def test_the_page_is_small_and_names_its_licence(pages: dict[str, Path]):
    assert pages["MANY"].stat().st_size < 4_000_000
    assert "Licensed under the MIT license" in pages["CLAIM"].read_text()[:8000]


def test_an_old_folder_renders_without_the_packages_of_experiments(pages: dict[str, Path]):
    folder = pages["CLAIM"].parent
    before = (folder / "report.html").read_text()
    (folder / "report.html").unlink()
    absent = (
        "jax",
        "jaxlib",
        "equinox",
        "optax",
        "scipy",
        "sklearn",
        "matfree",
        "numpyro",
        "lineax",
        "optimistix",
        "pandas",
        "safetensors",
    )
    code = (
        f"import sys\nfor name in {absent}: sys.modules[name] = None\n"
        f"sys.argv = ['attnlens', 'report', {str(folder)!r}]\n"
        "from attnlens.cli import main\nmain()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(attnlens.__file__).parents[1])},
    )
    assert done.returncode == 0, done.stderr
    assert (folder / "report.html").read_text() == before


@needs_browser
@pytest.mark.slow
def test_the_page_is_readable_in_one_second_and_draws_within_two(
    pages: dict[str, Path], browser: Any, tmp_path: Path
):
    # The fastest of five visits counts: the time of the page without other work of the machine.
    readable, drawing = [], []
    for _ in range(5):
        page, _, _ = opened(browser, pages["MANY"])
        paint = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0"
        until(page, f"() => {paint} > 0")
        readable.append(page.evaluate(paint) / 1000)
        place = page.query_selector_all("[data-figure]")[3]
        started = time.perf_counter()
        place.scroll_into_view_if_needed()
        drawn(page, place)
        drawing.append(time.perf_counter() - started)
        page.close()
    measured = {"first screen, s": readable, "figure after scrolling, s": drawing}
    artefact("page-times.json", tmp_path).write_text(json.dumps(measured, indent=2))
    assert min(readable) < 1
    assert min(drawing) < 2


@needs_browser
@pytest.mark.slow
def test_a_run_of_ten_thousand_cells_renders(browser: Any, tmp_path: Path):
    ledger = verify("smoke", ["toy_claims:HUGE"], tmp_path, workers=2)
    with Store.reading(tmp_path) as store:
        assert len(store.keys()) == 10_000
    assert ledger["claims"][0]["verdict"] == "supported"
    assert (tmp_path / "report.html").stat().st_size < 4_000_000
    page, console, _ = visit(browser, tmp_path / "report.html")
    assert console == []
    assert 100 < page.locator(".figure .scatterlayer .point").count() <= 800
    assert "means of 13" in page.inner_html(".figure .legend")


def test_numbers_have_four_digits_and_true_minus_signs():
    texts = [number(x) for x in (None, 0.25, -0.5, 1e-13, float("inf"), float("nan"))]
    assert texts == ["–", "0.25", "−0.5", "1e−13", "∞", "–"]
    assert minus("is -0.5, -0.6 to -.4; A.cme-is-posterior 3-4") == (
        "is −0.5, −0.6 to −.4; A.cme-is-posterior 3-4"
    )


def test_durations_have_suitable_units():
    assert [duration(s) for s in (0.04, 42, 968, 4 * 3600 + 90)] == [
        "0.0 s",
        "42 s",
        "16 min",
        "4 h 2 min",
    ]


def test_text_that_is_not_a_formula_is_shown_escaped():
    from attnlens.report.page import render_formula

    assert "<math" in render_formula(CLAIM.formula)
    assert "<b>" not in render_formula(r"\frac{<b>")
