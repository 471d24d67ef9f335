"""Where descents end.

Eight descents for each of three teachers, run until the gradient norm is below 1e−8. The typical
local minimum of the attention network predicts well; the worst one does not. This refutes "every
local minimum has low prediction error".
"""

from functools import partial

import attnlens
from attnlens.networks import Baseline, SelfAttention
from attnlens.worlds import TokenTeacher

shape = {"tokens": 3, "token_dim": 3, "query_dim": 1, "value_dim": 1, "hidden": 3}
networks = {
    "attention": partial(SelfAttention, **shape),
    "plain network": partial(Baseline, features=9, hidden=3),
}
audit = attnlens.stationarity(networks, TokenTeacher(**shape), samples=256, teachers=3, starts=8)
print(audit)
audit.plot().savefig("excess-of-minima.svg")
