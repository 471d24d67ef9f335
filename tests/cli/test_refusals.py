"""Every input of a user gives an answer, or one sentence and exit status 2."""

from __future__ import annotations

import errno
import json
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

from attnlens.cli.commands import prepare_process
from attnlens.cli.options import check_out
from attnlens.core.checks import SEEDS, BadInput, is_text, seed_number
from attnlens.core.user_code import user_code
from attnlens.runs.engines import cache
from attnlens.runs.planning import cells_of
from broken_claims import NUMPY
from hostile_files import header, npz
from in_process import run
from running import ATTNLENS, ENVIRONMENT, attnlens, one_sentence, toy


def refused(*arguments: object) -> str:
    """Run a command that must end with exit status 2, and return the sentence that it prints."""
    done = run(*arguments)
    assert (done.returncode, done.stdout) == (2, ""), done
    return one_sentence(done.stderr)


@pytest.mark.parametrize(
    ("claim", "says"),
    [
        ("PLAN", "the plan of T.toy failed in line 16 of broken_claims.py (fails): ValueError: my"),
        ("EXIT", "it called sys.exit(0); let it return instead"),
        ("SURROGATE", "must be text; got '\\udc80'"),
        ("INFINITE", "must be a finite number"),
        ("OBJECT", "must be a finite number"),
        ("LARGE_SEED", "must be below 2^32; got 4294967296"),
        ("NO_WORK", "must give a Work"),
    ],
)
def test_a_plan_that_fails_is_one_sentence(claim: str, says: str, tmp_path: Path):
    words = ("verify", "--profile", "smoke", "--claim", f"broken_claims:{claim}", "--dry-run")
    assert says in refused(*words, "--out", tmp_path)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("1 / 0", "failed in line 1 of own_claim.py: ZeroDivisionError"),
        ("def f(:", "failed in line 1 of own_claim.py: SyntaxError"),
        ("import sys; sys.exit(0)", "failed in line 1 of own_claim.py: it called sys.exit(0)"),
        ("import no_such_module_at_all", "ModuleNotFoundError"),
        ("class E(BaseException): ...\nraise E", "failed in line 2 of own_claim.py: E"),
    ],
)
def test_an_import_that_fails_is_one_sentence(
    content: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "own_claim.py").write_text(content)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "own_claim", raising=False)
    assert says in refused("verify", "--claim", "own_claim:CLAIM", "--out", tmp_path / "out")
    sys.path_importer_cache.clear()


@pytest.mark.slow  # each case starts worker processes
@pytest.mark.parametrize(
    ("claim", "says"),
    [
        ("JUDGE", "the rule of T.toy failed in line 16 of broken_claims.py (fails)"),
        ("FIGURE", "the figure of T.toy failed in line 16 of broken_claims.py (fails)"),
        ("NO_PARTS", "must give at least one Part; got a float"),
    ],
)
def test_a_rule_or_figure_that_fails_is_one_sentence(claim: str, says: str, tmp_path: Path):
    words = toy("CLAIM", tmp_path, "--workers", 1)
    words[4] = f"broken_claims:{claim}"
    done = attnlens(*words)
    assert done.returncode == 2
    assert says in one_sentence(done.stderr)


def test_numpy_numbers_in_a_plan_become_plain_ones():
    for cell in cells_of(NUMPY, "smoke"):
        assert json.loads(json.dumps(dict(cell.parameters))) == {
            "shift": 1,
            "sizes": [0, 1, 2],
            "scale": 0.5,
        }
        assert cell.seeds == (0, 1)
        assert len(cell.key) == 64


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("raise BaseException('odd')", "BaseException: odd"),
        ("import sys; sys.exit(0)", "it called sys.exit(0)"),
        ("raise KeyError('x')", "KeyError"),
    ],
)
def test_landscape_functions_that_fail_are_one_sentence(
    body: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "own_model", raising=False)
    (tmp_path / "own_model.py").write_text(f"def make():\n    {body}\n")
    assert says in refused("landscape", "own_model:make", "--out", "out")
    monkeypatch.delitem(sys.modules, "own_model", raising=False)
    (tmp_path / "own_model.py").write_text(
        f"import numpy as np\n\ndef loss(w):\n    {body}\n\n"
        f"def make():\n    return np.ones(2), loss\n"
    )
    sys.path_importer_cache.clear()
    assert says in refused("landscape", "own_model:make", "--out", "out")


def test_user_code_passes_interrupts_and_explained_errors():
    for error in (KeyboardInterrupt(), BadInput("a sentence.")):
        with pytest.raises(type(error)), user_code("it"):
            raise error


LONG = "x" * 5000


@pytest.mark.parametrize(
    "words",
    [
        ("samples", LONG, "--target", "y"),
        ("samples", "t.csv", "--target", "y", "--out", LONG),
        ("exchangeability", "t.csv", "--out", "t.csv/below"),
        ("report", LONG),
        ("store", "check", LONG),
        ("store", "export", "run", ""),
        ("store", "export", "run", "."),
        ("store", "merge", LONG, LONG),
        ("verify", "--claim", "toy_claims:CLAIM", "--profile", "smoke", "--out", LONG),
        ("verify", "--claim", "toy_claims:CLAIM", "--profile", "smoke", "--out", "t.csv/below"),
        ("verify", "--claim", LONG),
        ("verify", "--workers", 10**9, "--claim", "A.heads", "--out", "out"),
        ("exchangeability", "t.csv", "--memory-limit", "nan"),
        ("exchangeability", "t.csv", "--memory-limit", "1e-9"),
        ("samples", "t.csv", "--target", "b", "--separator", "ab"),
        ("samples", "t.csv", "--target", "b", "--decimal", "x"),
    ],
    ids=lambda words: " ".join(str(word)[:12] for word in words),
)
def test_paths_and_sizes_that_cannot_be_used(
    words: tuple, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    Path("t.csv").write_text("a,b\n" + "".join(f"{i * i % 7},{i % 2}\n" for i in range(30)))
    refused(*words)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("exchangeability", "t.csv", "--seed", SEEDS), "Invalid value for '--seed'"),
        (("exchangeability", "t.csv", "--permutations", 5 * 10**7), "'--permutations'"),
        (("landscape", "m:f", "--points", 20_000), "Invalid value for '--points'"),
        (("landscape", "m:f", "--eigenpairs", 10**6), "Invalid value for '--eigenpairs'"),
        (("replicate", "--times", 1), "greater than or equal to 2; `"),
        (("verify", "--engine", "moon"), "'moon' is not one of 'local', 'ray'; `"),
        (("verify", "--no-such-option"), "No such option: --no-such-option"),
        (("verify", "--workers"), "'--workers' requires an argument"),
        (("store", "no-such-command"), "No such command 'no-such-command'"),
        (("report",), "Missing argument 'DIR...'"),
    ],
    ids=str,
)
def test_arguments_that_are_refused_are_one_sentence(words: tuple, says: str):
    assert says in refused(*words)


def test_a_group_of_commands_without_one_prints_its_help():
    done = run("store")
    assert (done.returncode, done.stdout) == (2, "")
    assert "compact" in done.stderr


@pytest.mark.parametrize("content", ["lie", "archive", "text", "pickle", "nothing"])
def test_inputs_of_a_function_that_are_no_numbers_of_the_declared_size(
    content: str, tmp_path: Path
):
    path = tmp_path / "x.npy"
    if content == "lie":
        path.write_bytes(
            header("{'descr': '<f8', 'fortran_order': False, 'shape': (10000000000,), }")
        )
    elif content == "archive":
        path.write_bytes(npz(x=np.ones(3)))
    elif content != "nothing":
        np.save(path, np.array(["a", "b"], object if content == "pickle" else str))
    sentence = refused("inspect", "m:f", "--sequences", path)
    assert "allow_pickle" not in sentence  # NumPy's own advice would run the code of the file


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        MemoryError("Unable to allocate 8.00 EiB"),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
        RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 8 bytes.\nmore lines"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes"),
    ],
    ids=["python", "numpy", "system", "xla", "torch"],
)
def test_memory_that_runs_out_is_one_sentence(error: Exception, monkeypatch: pytest.MonkeyPatch):
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr("attnlens.cli.inspect.check_out", fail)
    sentence = refused("inspect", "m:f")
    assert "memory ran out" in sentence
    assert "file or folder" not in sentence


def test_other_errors_are_not_hidden(monkeypatch: pytest.MonkeyPatch):
    """A fault of the program keeps its traceback."""

    def fail(*_: object) -> None:
        raise RuntimeError("INTERNAL: a failed check")

    monkeypatch.setattr("attnlens.cli.inspect.check_out", fail)
    with pytest.raises(RuntimeError, match="a failed check"):
        run("inspect", "m:f")


@pytest.mark.parametrize("number", [2**15, 99_999_999_999])
def test_a_range_of_seeds_beyond_the_bound_has_no_plan(number: int):
    assert "seed_range must be below 32768" in refused(
        "verify", "--claim", "A.heads", "--dry-run", "--seed-range", number
    )


def test_seeds_are_those_that_the_user_gave():
    assert seed_number("seed", SEEDS - 1) == SEEDS - 1
    with pytest.raises(BadInput, match=r"below 2\^32"):
        seed_number("seed", SEEDS)
    assert not is_text("\udc80")


@pytest.mark.slow  # runs a claim
def test_numbers_in_a_ledger_that_are_too_large_for_a_float_raise_one_sentence(tmp_path: Path):
    assert attnlens(*toy("CLAIM", tmp_path, "--workers", 1)).returncode == 0
    with sqlite3.connect(tmp_path / "results.sqlite") as store:
        (text,) = store.execute("SELECT content FROM documents WHERE name = 'ledger'").fetchone()
    for value in ("Infinity", "1" + "0" * 400, "NaN", '"word"', "null", "-1e999"):
        for field in ("estimate", "seconds"):
            ledger = json.loads(text)
            ledger["claims"][0][field] = "@"
            broken = json.dumps(ledger).replace('"@"', value)
            with sqlite3.connect(tmp_path / "results.sqlite") as store:
                store.execute("UPDATE documents SET content = ? WHERE name = 'ledger'", (broken,))
            store.close()
            done = run("report", tmp_path)
            assert done.returncode in (0, 2), done
            if done.returncode:
                one_sentence(done.stderr)


ODD_PLACE = """
import os, runpy, sys
os.setgid(65_500); os.setuid(65_500)
sys.argv = ["attnlens", *sys.argv[1:]]
runpy.run_module("attnlens", run_name="__main__")
"""


@pytest.mark.slow  # starts processes of another user
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_user_without_home_and_name_and_folders_that_cannot_be_used(
    request: pytest.FixtureRequest,
):
    environment = {k: v for k, v in ENVIRONMENT.items() if k not in ("HOME", "XDG_CACHE_HOME")}
    environment.pop("ATTNLENS_CACHE", None)
    place = Path(tempfile.mkdtemp())  # the folder of pytest is closed to other users
    request.addfinalizer(lambda: shutil.rmtree(place))
    place.chmod(0o755)
    (place / "closed").mkdir(mode=0o700)
    open_folder = place / "open"
    open_folder.mkdir()
    open_folder.chmod(0o777)
    (open_folder / "t.csv").write_text("a\n" + "".join(f"{i * i % 7}\n" for i in range(30)))

    def other(*words: object, **more: str):
        return subprocess.run(
            [sys.executable, "-c", ODD_PLACE, *map(str, words)],
            env={**environment, **more},
            cwd=open_folder,
            capture_output=True,
            text=True,
            timeout=120,
        )

    words = ("exchangeability", "t.csv", "--permutations", "19", "--out")
    if "ModuleNotFoundError" in other("version").stderr:
        pytest.skip("the interpreter lies in a folder that is closed to other users")
    assert other(*words, open_folder / "out").returncode == 0
    done = other(*words, place / "closed" / "out")
    assert done.returncode == 2
    one_sentence(done.stderr)
    cache = place / "cache"  # owned by root: other users cannot write to it
    cache.mkdir(mode=0o755)
    (cache / "damaged-cache").write_bytes(b"x\x9c truncated")
    done = other(*words, open_folder / "out", ATTNLENS_CACHE=str(cache))
    assert done.returncode == 0, done.stderr


def test_without_a_home_folder_the_cache_is_a_folder_of_the_run(monkeypatch: pytest.MonkeyPatch):
    def nobody() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", nobody)
    monkeypatch.setattr(os, "environ", {})
    prepare_process()
    assert Path(os.environ["ATTNLENS_CACHE"]).is_dir()


def test_a_damaged_entry_of_a_cache_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "damaged-cache").write_bytes(b"x\x9c truncated")
    os.utime(tmp_path / "damaged-cache", (0, 0))  # so old that no process is writing it

    def denied(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "unlink", denied)
    assert cache.repair(tmp_path) == [tmp_path / "damaged-cache"]
    monkeypatch.setattr(Path, "exists", denied)
    with pytest.raises(BadInput, match="Permission denied"):
        check_out(tmp_path / "closed" / "out")


@pytest.mark.slow  # starts a process per case
def test_output_that_is_not_utf8_or_closed(tmp_path: Path):
    (tmp_path / "t.csv").write_text("größe\n" + "".join(f"{i * i % 7}\n" for i in range(30)))
    words = ("exchangeability", "t.csv", "--permutations", 19, "--out", "out")
    done = attnlens(*words, cwd=tmp_path, PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert "gr\\xf6\\xdfe" in done.stdout
    for closed in ("2>&-", ">&-", ">&- 2>&-"):
        command = " ".join([*ATTNLENS, "claims", closed])
        done = subprocess.run(
            ["/bin/sh", "-c", command], env=ENVIRONMENT, cwd=tmp_path, timeout=120
        )
        assert done.returncode == 0, closed
    failed = " ".join([*ATTNLENS, "samples", "nothing.csv", "2>&-"])
    done = subprocess.run(
        ["/bin/sh", "-c", failed], env=ENVIRONMENT, capture_output=True, timeout=60
    )
    assert (done.returncode, done.stdout) == (2, b"")


def test_a_listener_that_does_not_answer_is_not_waited_for(monkeypatch: pytest.MonkeyPatch):
    from attnlens.runs.engines import ray_connection

    monkeypatch.setattr(ray_connection, "ANSWER_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(BadInput, match="no Ray cluster answers"):
            ray_connection.check_address(f"127.0.0.1:{port}")


def test_a_folder_that_ray_cannot_send_is_refused(tmp_path: Path):
    from attnlens.runs.engines import ray_cells

    with (tmp_path / "large").open("wb") as file:
        file.truncate(ray_cells.MOST_UPLOADED + 1)  # a sparse file: no disk space is used
    with pytest.raises(BadInput, match="is sent to every node"):
        ray_cells.check_upload(tmp_path)
    ray_cells.check_upload(Path(np.__file__).parent / "random")
