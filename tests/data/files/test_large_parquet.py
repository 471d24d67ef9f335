"""Ten million rows by fifty columns in Parquet are sampled in less than 4 GB."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROWS, COLUMNS, GROUP = 10_000_000, 50, 500_000
# VmHWM is the peak memory of this program alone. `ru_maxrss` is kept over `exec`, so it would start
# with the peak of the process that started the program (here: a worker of pytest).
CHECK = """
import sys
from pathlib import Path
from attnlens.data import read
loaded = read(sys.argv[1], target="c0")
print(loaded.X.shape[0], loaded.X.shape[1], dict(loaded.facts)["rows"], sep="|")
status = Path("/proc/self/status").read_text()
print(status.split("VmHWM:")[1].split()[0])
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the peak of memory is read from /proc")
def test_ten_million_rows_in_less_than_four_gigabytes(tmp_path: Path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    random = np.random.default_rng(0)
    # Each column has sixteen different values, so that the file stays small; in memory the table
    # would take 4 GB.
    values = random.normal(size=(COLUMNS, 16))
    path = tmp_path / "huge.parquet"
    names = [f"c{i}" for i in range(COLUMNS)]
    codes = random.integers(0, 16, (COLUMNS, GROUP), np.int8)
    group = pa.table({n: v[c] for n, v, c in zip(names, values, codes, strict=True)})
    with pq.ParquetWriter(path, group.schema, compression="none") as writer:
        for number in range(ROWS // GROUP):
            # One column differs between the groups, so that no row is a copy of another one.
            column = pa.array(values[1][codes[1]] + number)
            writer.write_table(group.set_column(1, "c1", column), row_group_size=GROUP)
    done = subprocess.run(
        [sys.executable, "-c", CHECK, str(path)], capture_output=True, text=True, check=True
    )
    summary, kilobytes = done.stdout.split("\n")[:2]
    rows, columns, fact = summary.split("|")
    assert (int(rows), int(columns)) == (50_000, COLUMNS - 1)
    assert fact == "10,000,000 in the file, 50,000 of them read: rows at random, seed 0"
    assert int(kilobytes) < 4 * 2**20
