"""Conventions that the whole package keeps: names that are unique, helpers that stay private."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

import attnlens

SOURCE = Path(attnlens.__file__).parent
TREES = {path: ast.parse(path.read_text()) for path in sorted(SOURCE.rglob("*.py"))}
# Names of string methods that count as taking a string apart, whatever their argument is.
TAKING_APART = {
    "startswith",
    "endswith",
    "partition",
    "rpartition",
    "removeprefix",
    "removesuffix",
}
# Names of string methods that count only if their argument contains several words.
LOOKING = {"split", "rsplit", "find", "rfind", "index", "count", "replace"}
# Functions of the module `re` that count.
PATTERNS = {"compile", "match", "search", "fullmatch", "findall", "finditer", "split", "sub"}
# Functions that may take strings apart, as file:function. None of these strings is a sentence that
# the program wrote.
MAY_TAKE_APART = {
    # what a user writes: names of modules, columns and addresses, durations
    "advice/loss_surface.py:from_name",
    "cli/advise.py:_own_models",
    "claims/registry.py:find",
    "claims/lens.py:__post_init__",
    "cli/claims.py:_write_template",
    "cli/inspect.py:parse_layers",
    "cli/lenses.py:_write_package",
    "core/plugins.py:import_name",
    "cli/options.py:parse_types",
    "cli/verify.py:parse_settings",
    "core/durations.py:parse_duration",
    "runs/engines/ray_connection.py:_host_and_port",
    "runs/engines/ray_connection.py:same_cluster",
    # names of modules, functions, attributes, parameters and folders
    "advice/inspection/inspecting.py:_name",
    "core/numerical_path.py:library_names",
    "core/numerical_path.py:names_by_xla",
    "core/sheets.py:__getattr__",
    "instruments/landscape/hessian.py:_blocks",
    "instruments/layers/torch_recording.py:is_torch_module",
    "instruments/samples/pipelines.py:of",  # names of scores of scikit-learn
    "integrations/torch/modules.py:tolerant",
    "runs/code_version.py:imports",
    "runs/code_version.py:native_libraries",
    "runs/code_version.py:reachable_modules",
    "runs/engines/base.py:compute",
    "runs/engines/cache.py:use",
    "runs/engines/ray_cells.py:own_folder",
    "runs/engines/ray_connection.py:check_this_node",
    "runs/engines/ray_map.py:__call__",
    "runs/references.py:find",
    # file formats, and what operating systems and other programs print
    "attention/native/build.py:load_library",  # the loader's message holds the system's
    "attention/native/variants.py:ffi_version",
    "attention/native/variants.py:processor_features",
    "attention/native/variants.py:variant_here",
    "cli/commands.py:_refusal",  # typer's words on arguments
    "core/memory.py:is_out_of_memory",  # XLA and PyTorch say it in a message only
    "data/files/arrays.py:_unpacked",
    "data/files/decimals.py:_form",
    "data/files/formats.py:read_table",
    "data/files/separators.py:<module>",
    "data/text.py:<module>",
    "integrations/transformers/bert.py:<module>",
    "integrations/transformers/bert.py:of",
    "runs/engines/cache.py:_is_intact",
    "runs/engines/local.py:read_answer",
    "runs/provenance.py:_cpuinfo",
    "runs/provenance.py:_instructions",
    # the page: anchors, minus signs, MathML and the licence of a script
    "report/page.py:render_formula",
    "report/templating.py:minus",
    "report/templating.py:plotly_script",
}


def repeated_classes(trees: dict[Path, ast.Module]) -> dict[str, list[str]]:
    """Class names that are defined more than once, with the files that define them."""
    places = defaultdict[str, list[str]](list)
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(path.name)
    return {name: files for name, files in places.items() if len(files) > 1}


def private_imports(tree: ast.Module) -> Iterator[str]:
    """Names with a leading underscore that a module imports from another module of the package."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (
            node.level or (node.module or "").startswith("attnlens")
        ):
            for alias in node.names:
                if alias.name.startswith("_") and not alias.name.startswith("__"):
                    yield alias.name


def sentences_taken_apart(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Yield (function name, line) wherever a string is taken apart or searched for words."""

    def visit(node: ast.AST, function: str) -> Iterator[tuple[str, int]]:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            function = node.name
        if takes_apart(node) or looks_for_words(node):
            yield function, getattr(node, "lineno", 0)
        for child in ast.iter_child_nodes(node):
            yield from visit(child, function)

    return visit(tree, "<module>")


def takes_apart(node: ast.AST) -> bool:
    """Whether `node` is `text.startswith(…)`, `text.partition(…)`, `re.search(…)` or a similar
    call."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
        return False
    owner = node.func.value.id if isinstance(node.func.value, ast.Name) else ""
    if owner == "re":
        return node.func.attr in PATTERNS
    if node.func.attr in LOOKING:
        return any(has_words(argument) for argument in node.args[:1])
    return node.func.attr in TAKING_APART and owner != "eqx"  # `eqx.partition` splits a model


def has_words(node: ast.AST, spaces: int = 1) -> bool:
    """Whether `node` is a string that contains a letter and at least `spaces` spaces; leading and
    trailing spaces count."""
    text = node.value if isinstance(node, ast.Constant) else None
    return isinstance(text, str) and text.count(" ") >= spaces and any(map(str.isalpha, text))


def looks_for_words(node: ast.AST) -> bool:
    """Whether `node` is `"two words" in text`, `word in str(value)` or `text == "a whole phrase"`.

    On the two sides of `==`, only strings with two or more spaces count: a name, such as "mean
    token", has at most one.
    """
    if not isinstance(node, ast.Compare):
        return False
    place = node.comparators[0]
    if isinstance(node.ops[0], ast.Eq | ast.NotEq):
        return any(has_words(side, spaces=2) for side in (node.left, place))
    if not isinstance(node.ops[0], ast.In | ast.NotIn):
        return False
    if isinstance(place, ast.Call) and getattr(place.func, "id", "") in ("str", "repr"):
        return True
    text = node.left.value if isinstance(node.left, ast.Constant) else None
    return isinstance(text, str) and " " in text.strip()


def test_class_names_are_unique():
    assert repeated_classes(TREES) == {}
    twice = {Path("a.py"): ast.parse("class A: ..."), Path("b.py"): ast.parse("class A: ...")}
    assert repeated_classes(twice) == {"A": ["a.py", "b.py"]}


def test_private_helpers_are_not_imported_by_other_modules():
    offences = [(path.name, name) for path, tree in TREES.items() for name in private_imports(tree)]
    assert offences == []
    assert list(private_imports(ast.parse("from .other import _helper"))) == ["_helper"]


def decimal_literals(tree: ast.Module) -> set[float]:
    """The floating-point literals in the source of a module."""
    nodes = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant))
    return {value for value in nodes if isinstance(value, float)}


def test_quantiles_are_computed():
    """No source file contains a quantile of a 95 % or 90 % interval as a literal:
    `Reading.interval` is the only interval, and `scipy.special` computes its quantile."""
    quantiles = {1.96, 2 * 1.96, 1.95996, 1.645, 1.64}
    assert [path.name for path, tree in TREES.items() if decimal_literals(tree) & quantiles] == []
    assert [path.name for path in TREES if "1.96" in path.read_text()] == []
    assert decimal_literals(ast.parse("x = 1.96 * error")) == {1.96}


def test_the_formatter_decides_the_layout():
    assert [path.name for path in TREES if "fmt: skip" in path.read_text()] == []


def test_the_top_level_holds_packages_only():
    files = {path.name for path in SOURCE.iterdir() if path.is_file()}
    assert files == {"__init__.py", "__init__.pyi", "__main__.py", "py.typed"}


def test_the_program_never_takes_its_own_sentences_apart():
    """The program decides by types, numbers and enumerations, never by the text of its own
    sentences."""
    offences = [
        f"{path.relative_to(SOURCE)}:{function}, line {line}"
        for path, tree in TREES.items()
        for function, line in sentences_taken_apart(tree)
        if f"{path.relative_to(SOURCE)}:{function}" not in MAY_TAKE_APART
    ]
    assert offences == []


@pytest.mark.parametrize(
    "source",
    [
        '"all read" not in facts["rows"]',
        'ending.startswith("all")',
        "answer.answer.startswith(UNKNOWN)",
        'str(one).partition("(")',
        "measured.partition(' is ')",
        'any("attention" in str(m) for m in models)',
        '"disk is full" in text',
        'column.rpartition(" ")',
        '"targets 0" in words',
        '"locked" in str(error)',
        "cause in str(error)",
        'measured.split(" is ")[0]',
        'answer.answer == "not enough data to say"',
        "re.search(pattern, sentence)",
    ],
)
def test_a_sentence_that_is_taken_apart_is_found(source: str):
    assert [name for name, _ in sentences_taken_apart(ast.parse(source))] == ["<module>"]


def test_sets_of_names_and_models_may_be_searched():
    for source in ('"rows" in names', "eqx.partition(params, keep)", '"params" in "text".split()'):
        assert not list(sentences_taken_apart(ast.parse(source)))
