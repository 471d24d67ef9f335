"""One claim, judged.

A claim of lens A (Zhang et al., 2022) runs as an experiment: cells are measured in worker
processes, the estimate gets an interval over independent replicates, and a control, in which the
prediction must fail, is judged by the same rule. The figure is the claim's own, drawn from the
stored cells.
"""

from pathlib import Path

import attnlens
from attnlens.claims import Measured, find
from attnlens.runs import Store, cells_of

ledger = attnlens.verify("smoke", ["A.softmax-smoothed"], out="run", workers=1)
(entry,) = ledger["claims"]
print(f"{entry['id']}: {entry['verdict']}; control: {entry['control']}")
print(entry["reason"])

(claim,) = find(["A.softmax-smoothed"])
arms: dict[str, list[Measured]] = {arm: [] for arm in claim.arms}
with Store.reading(Path("run")) as store:
    for cell in cells_of(claim, "smoke"):
        arms[cell.arm].append(Measured(cell.parameters, cell.seeds, store.result(cell.key).values))
claim.figure(arms).plot().savefig("softmax-smoothed.svg")
