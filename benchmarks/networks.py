"""Ensembles of small attention networks, trained by attnlens and by its peers.

32 self-attention models (16 tokens of 16 numbers, d_q = d_v = 8, 64 hidden units: 8,640 parameters
each), 512 samples, batches of 64, 300 Adam steps, float32, by

    fit                  attnlens.networks.fit, one single-threaded worker process per core
    JAX jit(vmap)        the plain program with optax, one process
    PyTorch loop         one model after the other; 4 of the 32 are run, and the time is scaled
    PyTorch stacked      parameters of all models in one array, `bmm`, and a foreach or fused Adam;
                         also `stack_module_state` under `vmap`
    scikit-learn         joblib over `MLPRegressor`, one process per core: plain networks of 8,515
                         parameters with as many steps, because scikit-learn has no attention; 8 of
                         the 32 are run

The accuracy is the mean squared error on the training data after the last step; it shows that all
contenders did the work.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from benchmarks.contest import CORES, Contender, Growth, Run, Work

TOKENS, DIM, QUERY, VALUE, HIDDEN = 16, 16, 8, 8, 64
MODELS, SAMPLES, BATCH, STEPS, RATE = 32, 512, 64, 300, 1e-3
SHARPNESS = 5.0
PLAIN = 33  # hidden units that give scikit-learn's network about as many parameters
PEERS = "peers-torch"
MAKE = "benchmarks.networks:"

# Multiplications and additions in the forward pass of one sample: three projections, logits, means
# of values, and the head. A training step costs about three forward passes.
FORWARD = 2 * (
    (2 * QUERY + VALUE) * DIM * TOKENS + TOKENS**2 * (QUERY + VALUE) + HIDDEN * (TOKENS * VALUE + 1)
)
OPERATIONS = 3.0 * FORWARD * MODELS * BATCH * STEPS


def data(tokens: int = TOKENS) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    x = random.normal(size=(SAMPLES, DIM, tokens)).astype("float32")
    return x, random.normal(size=(SAMPLES, 1)).astype("float32")


def training_error(outputs: Any, targets: Any) -> dict[str, float]:
    """The mean squared error of outputs (models, samples, 1) on the training data."""
    return {"training error": float(np.mean((np.asarray(outputs) - targets) ** 2))}


def pool() -> Any:
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    return ProcessPoolExecutor(CORES, multiprocessing.get_context("spawn"))


def ensemble_fit(
    models: int = MODELS,
    steps: int = STEPS,
    batch: int = BATCH,
    tokens: int = TOKENS,
    hidden: int = HIDDEN,
) -> Run:
    import jax

    from attnlens.networks import SelfAttention, fit

    shape = {"tokens": tokens, "token_dim": DIM, "query_dim": QUERY, "value_dim": VALUE}
    make, (x, y) = partial(SelfAttention, hidden=hidden, **shape), data(tokens)
    workers = pool()

    def call() -> Any:
        return fit(
            make,
            x,
            y,
            seeds=range(models),
            batch=batch,
            steps=steps,
            learning_rate=RATE,
            every=steps,
            block=-(-models // CORES),
            map=workers.map,
        )

    def accuracy(fitted: Any) -> dict[str, float]:
        return training_error([jax.vmap(fitted.model(i))(x) for i in range(models)], y)

    return Run(call, accuracy, STEPS / steps)


def ensemble_vmap(models: int = MODELS, steps: int = STEPS) -> Run:
    import jax
    import jax.numpy as jnp
    import optax

    x, y = (jnp.asarray(part) for part in data())
    optimiser = optax.adam(RATE)

    def start(key: Any) -> Any:
        parts = jax.random.split(key, 5)
        shapes = [(QUERY, DIM), (QUERY, DIM), (VALUE, DIM), (HIDDEN, TOKENS * VALUE), (1, HIDDEN)]
        return [jax.random.normal(k, s) / s[1] ** 0.5 for k, s in zip(parts, shapes, strict=True)]

    def model(w: Any, x: Any) -> Any:
        scores = (w[1] @ x).T @ (w[0] @ x) / QUERY**0.5
        mixed = (w[2] @ x) @ jax.nn.softmax(scores, axis=0)
        return w[4] @ (jax.nn.softplus(SHARPNESS * (w[3] @ mixed.T.ravel())) / SHARPNESS)

    def loss(w: Any, x: Any, y: Any) -> Any:
        return jnp.mean((jax.vmap(model, (None, 0))(w, x) - y) ** 2)

    def train(key: Any, x: Any, y: Any) -> Any:
        weights = start(key)

        def step(carry: Any, key: Any) -> Any:
            weights, state = carry
            rows = jax.random.randint(key, (BATCH,), 0, SAMPLES)
            value, slope = jax.value_and_grad(loss)(weights, x[rows], y[rows])
            update, state = optimiser.update(slope, state)
            return (optax.apply_updates(weights, update), state), value

        begin = (weights, optimiser.init(weights))
        return jax.lax.scan(step, begin, jax.random.split(key, steps))[0][0]

    run = jax.jit(jax.vmap(train, (0, None, None)))
    keys = jax.random.split(jax.random.key(0), models)

    def accuracy(weights: Any) -> dict[str, float]:
        return training_error(jax.vmap(jax.vmap(model, (None, 0)), (0, None))(weights, x), y)

    return Run(lambda: jax.block_until_ready(run(keys, x, y)), accuracy, STEPS / steps)


def torch_ready() -> Any:
    """The module `torch`, a class of networks, and data with tokens along the second axis."""
    from benchmarks.transformer import pytorch

    torch = pytorch()
    x, y = (torch.from_numpy(part) for part in data())

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            linear = partial(torch.nn.Linear, bias=False)
            self.query, self.key = linear(DIM, QUERY), linear(DIM, QUERY)
            self.value = linear(DIM, VALUE)
            self.first, self.second = linear(TOKENS * VALUE, HIDDEN), linear(HIDDEN, 1)

        def forward(self, x: Any) -> Any:
            scores = self.query(x) @ self.key(x).transpose(1, 2) / QUERY**0.5
            mixed = torch.softmax(scores, -1) @ self.value(x)
            hidden = torch.nn.functional.softplus(self.first(mixed.flatten(1)), beta=SHARPNESS)
            return self.second(hidden)

    return torch, Net, x.transpose(1, 2).contiguous(), y


def ensemble_torch_loop(models: int = MODELS, steps: int = STEPS, part: int = 1) -> Run:
    torch, net, tokens, y = torch_ready()

    def call() -> Any:
        trained = []
        for seed in range(models // part):
            torch.manual_seed(seed)
            one = net()
            optimiser = torch.optim.Adam(one.parameters(), lr=RATE)
            for _ in range(steps):
                rows = torch.randint(0, SAMPLES, (BATCH,))
                optimiser.zero_grad()
                torch.nn.functional.mse_loss(one(tokens[rows]), y[rows]).backward()
                optimiser.step()
            trained.append(one)
        return trained

    def accuracy(trained: Any) -> dict[str, float]:
        return training_error([one(tokens).detach() for one in trained], y.numpy())

    return Run(call, accuracy, part * STEPS / steps)


def adam(torch: Any, weights: Any, kind: str) -> Any:
    return torch.optim.Adam(weights, lr=RATE, **{kind: True})


def ensemble_torch_stacked(
    models: int = MODELS, steps: int = STEPS, optimiser: str = "foreach"
) -> Run:
    """PyTorch with stacked weights of all models: products by `bmm`, without `vmap`."""
    torch, _, tokens, y = torch_ready()

    def forward(w: Any, batch: Any) -> Any:
        count = batch.shape[1]
        flat = batch.reshape(models, count * TOKENS, DIM)
        query, key, value = (
            torch.bmm(flat, part).reshape(models * count, TOKENS, -1) for part in w[:3]
        )
        scores = torch.bmm(query, key.transpose(1, 2)) / QUERY**0.5
        mixed = torch.bmm(torch.softmax(scores, -1), value).reshape(models, count, -1)
        hidden = torch.nn.functional.softplus(torch.bmm(mixed, w[3]), beta=SHARPNESS)
        return torch.bmm(hidden, w[4])

    def call() -> Any:
        torch.manual_seed(0)
        shapes = [(DIM, QUERY), (DIM, QUERY), (DIM, VALUE), (TOKENS * VALUE, HIDDEN), (HIDDEN, 1)]
        w = [(torch.randn(models, *s) / s[0] ** 0.5).requires_grad_() for s in shapes]
        descend = adam(torch, w, optimiser)
        for _ in range(steps):
            rows = torch.randint(0, SAMPLES, (models, BATCH))
            error = (forward(w, tokens[rows]) - y[rows]) ** 2
            descend.zero_grad()
            error.mean((1, 2)).sum().backward()
            descend.step()
        return w

    def accuracy(w: Any) -> dict[str, float]:
        outputs = forward(w, tokens.expand(models, *tokens.shape)).detach()
        return training_error(outputs, y.numpy())

    return Run(call, accuracy, STEPS / steps)


def ensemble_torch_modules(models: int = MODELS, steps: int = STEPS) -> Run:
    """PyTorch with `stack_module_state`, and `vmap` over `functional_call`."""
    torch, net, tokens, y = torch_ready()
    skeleton = net()

    def one(w: Any, x: Any) -> Any:
        return torch.func.functional_call(skeleton, w, (x,))

    outputs = torch.func.vmap(one)

    def call() -> Any:
        torch.manual_seed(0)
        w, _ = torch.func.stack_module_state([net() for _ in range(models)])
        descend = adam(torch, list(w.values()), "foreach")
        for _ in range(steps):
            rows = torch.randint(0, SAMPLES, (models, BATCH))
            error = (outputs(w, tokens[rows]) - y[rows]) ** 2
            descend.zero_grad()
            error.mean((1, 2)).sum().backward()
            descend.step()
        return w

    def accuracy(w: Any) -> dict[str, float]:
        predicted = outputs(w, tokens.expand(models, *tokens.shape)).detach()
        return training_error(predicted, y.numpy())

    return Run(call, accuracy, STEPS / steps)


def _plain(x: np.ndarray, y: np.ndarray, passes: int, seed: int) -> Any:
    import warnings

    from sklearn.neural_network import MLPRegressor

    setting: dict[str, Any] = {
        "hidden_layer_sizes": (PLAIN,),
        "batch_size": BATCH,
        "learning_rate_init": RATE,
        "max_iter": passes,
        "alpha": 0.0,
        "n_iter_no_change": passes + 1,
        "random_state": seed,
    }
    network = MLPRegressor(**setting)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns that it has not converged: intended
        return network.fit(x, y)


def ensemble_sklearn(models: int = MODELS, steps: int = STEPS, part: int = 1) -> Run:
    from joblib import Parallel, delayed

    x, y = data()
    flat, target, passes = x.reshape(SAMPLES, -1), y[:, 0], -(-steps * BATCH // SAMPLES)
    run = Parallel(n_jobs=CORES)

    def call() -> Any:
        return run(delayed(_plain)(flat, target, passes, seed) for seed in range(models // part))

    def accuracy(trained: Any) -> dict[str, float]:
        return training_error([one.predict(flat)[:, None] for one in trained], y)

    # scikit-learn counts passes over the data; rounding up makes a few more steps, hence the scale.
    return Run(call, accuracy, part * STEPS * BATCH / (passes * SAMPLES))


TORCH, LOOP = MAKE + "ensemble_torch_", {"part": 8}

WORKS = [
    Work(
        name="Ensemble of attention networks",
        group="training",
        task="32 self-attention networks of 8,640 parameters, 300 Adam steps on batches of 64 "
        "each. PyTorch's loop runs 4 of them and scikit-learn 8 (plain networks: it has no "
        "attention), scaled.",
        contenders=[
            Contender("attnlens", MAKE + "ensemble_fit", threads="one"),
            Contender("JAX jit(vmap)", MAKE + "ensemble_vmap"),
            Contender("PyTorch loop (one thread)", TORCH + "loop", PEERS, "one", LOOP),
            Contender("PyTorch loop (all threads)", TORCH + "loop", PEERS, "all", LOOP),
            Contender("PyTorch stacked (foreach)", TORCH + "stacked", PEERS),
            Contender(
                "PyTorch stacked (fused)",
                TORCH + "stacked",
                PEERS,
                setting={"optimiser": "fused"},
            ),
            Contender("PyTorch stacked (modules)", TORCH + "modules", PEERS),
            Contender(
                "joblib over scikit-learn",
                MAKE + "ensemble_sklearn",
                threads="one",
                setting={"part": 4},
            ),
        ],
        quick={"steps": 100},
        repeats=2,
        aims={"PyTorch loop": 12, "PyTorch stacked": 3, "JAX jit(vmap)": 1.5},
        operations=OPERATIONS,
        limit="matmul float32",
        # From a profile on one core; a ReLU in place of softplus made no measurable difference.
        why="A third of the time is attention's own products of 16 × 8, in a kernel of its own.",
    ),
]

GROWTH = [
    Growth(
        name="Training over the number of networks",
        make=MAKE + "ensemble_fit",
        sizes=(32, 64, 128, 256),
        setting={"steps": 30},
        time=1.0,
        memory=1.0,
        argument="models",
        threads="one",
        task="30 steps on batches of 64.",
    ),
    Growth(
        name="Training over the batch",
        make=MAKE + "ensemble_fit",
        sizes=(64, 128, 256, 512),
        setting={"steps": 30},
        time=1.0,
        memory=1.0,
        argument="batch",
        threads="one",
        task="32 networks, 30 steps.",
    ),
    Growth(
        name="Training over the tokens",
        make=MAKE + "ensemble_fit",
        sizes=(64, 128, 256, 512),
        setting={"models": 2, "steps": 10, "batch": 32, "hidden": 8},
        time=2.0,
        memory=2.0,
        argument="tokens",
        threads="one",
        task="Attention reads every pair of tokens; the head of 8 units, its weights and the "
        "projections grow only linearly.",
    ),
]
