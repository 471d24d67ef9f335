"""PyTorch modules as JAX functions: they equal torch up to rounding and have no side effects."""

import copy
import os
import subprocess
import sys
from importlib.util import find_spec

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import attnlens
from attnlens.core.checks import BadInput

torch = pytest.importorskip("torch", reason="PyTorch is not installed (extra `torch`)")
if find_spec("torchax") is None:  # not imported: its import fails without the fixes of from_torch
    pytest.skip("torchax is not installed (extra `torch`)", allow_module_level=True)

nn = torch.nn
EPSILON = float(np.finfo(float).eps)


def mlp():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(5, 8), nn.GELU(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 3))
    return module.double(), (5,), 5 + 8 + 8


def cnn():
    torch.manual_seed(1)
    module = nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.SiLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(4, 4, 3, stride=2),
        nn.GroupNorm(2, 4),
        nn.Flatten(),
        nn.Linear(4 * 4, 3),
    )
    module[1].running_mean.normal_()
    module[1].running_var.uniform_(0.5, 2.0)
    return module.double().eval(), (2, 10, 10), 2 * 9 + 4 * 9 + 2 * 16 + 16


def transformer():
    torch.manual_seed(2)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, activation="gelu")
    module = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).double().eval()
    for p in module.parameters():  # biases of zero would hide a mistake in them
        p.data += 0.1 * torch.randn_like(p)
    # Per layer: projections of 8, scores of 4, 6 tokens, output of 8, twice 8 to 16, norms of 8.
    return module, (6, 8), 2 * (8 + 4 + 6 + 8 + 8 + 16 + 16)


CASES = {"mlp": mlp, "cnn": cnn, "transformer": transformer}


def torch_side(module, inputs, keywords, weights, params, direction):
    """(output, gradient, Hessian product) of Σ weights · output² by torch, in float64."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def loss(p):
        out = torch.func.functional_call(module, p, inputs, keywords)
        return (weights * out**2).sum()

    tensors = [{n: torch.tensor(np.array(v)) for n, v in t.items()} for t in (params, direction)]
    # The fast kernels of PyTorch have no second derivatives.
    with sdpa_kernel(SDPBackend.MATH):
        slope = torch.func.grad(loss)
        gradient = slope(tensors[0])
        product = torch.func.grad(
            lambda p: sum((part * tensors[1][n]).sum() for n, part in slope(p).items())
        )(tensors[0])
        with torch.no_grad():
            output = torch.func.functional_call(module, tensors[0], inputs, keywords)
    flat = [
        np.concatenate([t[n].detach().numpy().ravel() for n in sorted(t)])
        for t in (gradient, product)
    ]
    return output.numpy(), *flat


def jax_side(apply, inputs, keywords, weights, params, direction):
    @jax.jit
    def all_three(params, direction, inputs, keywords):
        def loss(p):
            return jnp.sum(weights * apply(p, *inputs, **keywords) ** 2)

        gradient, product = jax.jvp(jax.grad(loss), (params,), (direction,))
        return apply(params, *inputs, **keywords), gradient, product

    output, *trees = all_three(params, direction, inputs, keywords)
    return np.asarray(output), *(
        np.concatenate([np.asarray(tree[n]).ravel() for n in sorted(tree)]) for tree in trees
    )


def rounding(evaluate, params, roundings, random):
    """Bounds on the rounding errors of the results of `evaluate`.

    A sum of n products in floating point is the exact sum for factors with relative errors of at
    most nε (Higham, Accuracy and Stability, 2002, section 3.1). So the rounding of a path through
    layers with `roundings` products in total has the effect of relative errors of `roundings` ε in
    the weights. This effect is measured with random relative changes of ±1e-6. A gradient follows
    the path twice, a Hessian product four times, and both sides round.
    """
    plain, moves = evaluate(params), []
    for _ in range(3):
        signs = {n: 1 + 1e-6 * random.choice([-1.0, 1.0], v.shape) for n, v in params.items()}
        moved = evaluate({n: v * signs[n] for n, v in params.items()})
        moves.append([np.abs(a - b).max() / 1e-6 for a, b in zip(moved, plain, strict=True)])
    return 2 * EPSILON * roundings * np.array([1, 2, 4]) * np.max(moves, axis=0)


def agree(module, inputs, keywords, roundings):
    random = np.random.default_rng(0)
    params, apply = attnlens.from_torch(module)
    direction = {name: random.normal(size=value.shape) for name, value in params.items()}
    tensors = tuple(torch.tensor(x) for x in inputs)
    tensor_keywords = {name: torch.tensor(value) for name, value in keywords.items()}
    with torch.no_grad():
        weights = random.normal(size=tuple(module(*tensors, **tensor_keywords).shape))

    def by_torch(params):
        return torch_side(
            module, tensors, tensor_keywords, torch.tensor(weights), params, direction
        )

    bounds = rounding(by_torch, params, roundings, random)
    ours = jax_side(apply, inputs, keywords, weights, params, direction)
    for name, mine, theirs, bound in zip(
        ("output", "gradient", "Hessian product"), ours, by_torch(params), bounds, strict=True
    ):
        assert mine.dtype == np.float64
        assert np.abs(mine - theirs).max() <= bound, name
        assert bound < 1e-9 * np.abs(theirs).max(), name  # the bound is small enough to test


@pytest.mark.parametrize("case", list(CASES))
def test_forward_gradient_and_hessian_product_equal_torch(case):
    module, shape, roundings = CASES[case]()
    inputs = np.random.default_rng(1).normal(size=(4, *shape))
    agree(module, (inputs,), {}, roundings)


def test_padding_masks_have_the_same_effect_as_in_torch():
    module, shape, roundings = transformer()
    inputs = np.random.default_rng(1).normal(size=(4, *shape))
    padding = np.arange(6) >= np.array([6, 4, 3, 5])[:, None]
    agree(module, (inputs,), {"src_key_padding_mask": padding}, roundings)
    params, apply = attnlens.from_torch(module)
    changed = np.where(padding[..., None], 100.0, inputs)
    both = [apply(params, x, src_key_padding_mask=padding)[~padding] for x in (inputs, changed)]
    np.testing.assert_array_equal(*both)
    assert not np.allclose(both[0], apply(params, inputs)[~padding])


class Last(nn.Module):
    """A Hugging Face model that returns the representation of its last layer."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, numbers, mask):
        return self.model(input_ids=numbers, attention_mask=mask).last_hidden_state


@pytest.mark.slow
def test_torch_bert_of_hugging_face_is_converted():
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    torch.manual_seed(0)
    settings = transformers.BertConfig(
        vocab_size=30,
        hidden_size=8,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=12,
        attn_implementation="eager",
    )
    model = transformers.BertModel(settings, add_pooling_layer=False).double().eval()
    for p in model.parameters():
        p.data += 0.1 * torch.randn_like(p)
    numbers = np.random.default_rng(0).integers(0, 30, (3, 6))
    mask = (np.arange(6) < np.array([6, 4, 5])[:, None]).astype(np.int64)
    agree(Last(model), (numbers, mask), {}, 2 * (8 + 4 + 6 + 8 + 8 + 16 + 16))
    # An output that is a mapping becomes a dictionary.
    params, apply = attnlens.from_torch(model)
    assert apply(params, input_ids=numbers)["last_hidden_state"].shape == (3, 6, 8)


# -- no side effects on the module or the process --------------------------------------------------


def test_the_torch_module_is_not_changed():
    module, shape, _ = cnn()
    module.train()
    module[1].eval()
    module[0].weight.requires_grad_(False)
    module[4].weight.grad = torch.ones_like(module[4].weight)
    module.note = [1, 2]

    def state():
        tensors = [*module.named_parameters(), *module.named_buffers()]
        return (
            [
                (name, id(t), t.data_ptr(), t._version, t.requires_grad, t.tolist(), t.dtype)
                for name, t in tensors
            ],
            [None if p.grad is None else p.grad.tolist() for p in module.parameters()],
            [
                (name, part.training, len(part._forward_hooks))
                for name, part in module.named_modules()
            ],
            sorted(vars(module)),
            module.note,
        )

    def process():
        return (
            torch.get_rng_state().tolist(),
            torch.backends.mha.get_fastpath_enabled(),
            torch.get_default_dtype(),
            torch.get_default_device(),
            torch.is_grad_enabled(),
            dict(os.environ),
            dict(jax.config.values),
        )

    before = copy.deepcopy((state(), process()))
    params, apply = attnlens.from_torch(module)
    x = np.random.default_rng(0).normal(size=(4, *shape))
    apply(params, x)
    jax.grad(lambda p: jnp.sum(apply(p, x)))(params)
    params["4.weight"][:] = 0  # the arrays are copies
    assert before == (state(), process())


def test_importing_torchax_changes_nothing_for_torch_or_jax():
    check = """
import os, jax, torch
import attnlens
module = torch.nn.Conv2d(2, 1, 3)
settings = lambda: (dict(jax.config.values), dict(os.environ), torch.get_default_dtype(),
    torch.backends.mha.get_fastpath_enabled(), torch.get_default_device(),
    torch._ops.OpOverloadPacket.__getattr__, torch.get_rng_state().tolist())
for fast in (True, False):
    torch.backends.mha.set_fastpath_enabled(fast)
    before = settings()
    params, apply = attnlens.from_torch(module)
    apply(params, torch.ones(1, 2, 4, 4))
    assert settings() == before, [a for a, b in zip(before, settings()) if a != b]
import sys; assert "torchax" in sys.modules
"""
    plain = {**os.environ, "JAX_ENABLE_X64": "0"}
    for name in ("ENABLE_RUNTIME_UPTIME_TELEMETRY", "TORCHINDUCTOR_CACHE_DIR"):
        plain.pop(name, None)
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, env=plain)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr


class Parts(nn.Module):
    """A module with trainable, frozen and tied weights, a buffer, a tensor attribute, and a
    temporary tensor."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Linear(3, 3)
        self.tied = nn.Linear(3, 3)
        self.tied.weight = self.first.weight
        self.frozen = nn.Parameter(torch.randn(3), requires_grad=False)
        self.register_buffer("shift", torch.randn(3))
        self.scale = torch.tensor([1.0, 2.0, 3.0])

    def forward(self, x):
        x = self.tied(torch.tanh(self.first(x))) * self.scale + self.shift
        return {"out": x * self.frozen, "places": x + torch.arange(3)}


def test_torch_parameters_are_separated_from_constants():
    module = Parts()
    params, apply = attnlens.from_torch(module)
    assert sorted(params) == ["first.bias", "first.weight", "tied.bias"]
    x = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    with torch.no_grad():
        theirs = module(torch.tensor(x))
    for name, mine in apply(params, x).items():
        # Two sums of 3 products of order 1, scaled by at most 3 in float32.
        bound = 20 * np.finfo(np.float32).eps * np.abs(theirs[name].numpy()).max()
        assert np.abs(np.asarray(mine) - theirs[name].numpy()).max() <= bound
    slope = jax.grad(lambda p: apply(p, x)["out"].sum())(params)
    # The gradient of a tied weight is the sum over its two uses.
    expected = torch.func.grad(
        lambda p: torch.func.functional_call(module, p, torch.tensor(x))["out"].sum()
    )({name: torch.tensor(value) for name, value in params.items()})
    size = np.abs(expected["first.weight"].numpy()).max()
    gap = np.abs(np.asarray(slope["first.weight"]) - expected["first.weight"].numpy()).max()
    assert gap <= 40 * np.finfo(np.float32).eps * size


def test_torch_modules_compute_in_the_widest_type_of_parameters_and_inputs():
    params, apply = attnlens.from_torch(nn.Linear(3, 2))
    assert params["weight"].dtype == np.float32
    assert apply(params, np.ones((1, 3), np.float32)).dtype == jnp.float32
    assert apply(params, np.ones((1, 3))).dtype == jnp.float64
    half, apply = attnlens.from_torch(nn.Linear(3, 2).bfloat16())
    assert half["weight"].dtype == jnp.bfloat16
    assert apply(half, np.ones((1, 3), np.float32)).dtype == jnp.float32


# -- what cannot be converted ----------------------------------------------------------------------


class Branches(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.linear, self.kind = nn.Linear(3, 3), kind

    def forward(self, x):
        x = self.linear(x)
        if self.kind == "if":
            return x if x.sum() > 0 else -x
        if self.kind == "item":
            return x * x[0, 0].item()
        if self.kind == "int":
            return x[: int(x.abs().max()) + 1]
        return x[x > 0]


@pytest.mark.parametrize("kind", ["if", "item", "int", "mask"])
def test_torch_code_that_depends_on_values_raises_one_sentence(kind):
    params, apply = attnlens.from_torch(Branches(kind))
    with pytest.raises(BadInput, match="depends on the values of tensors") as caught:
        apply(params, np.ones((2, 3)))
    assert str(caught.value).count("\n") == 0


def test_torch_dropout_needs_a_key_or_evaluation_mode():
    module = nn.Sequential(nn.Linear(4, 64), nn.Dropout(0.5))
    params, apply = attnlens.from_torch(module)
    x = np.ones((1, 4), np.float32)
    with pytest.raises(BadInput, match=r"module\.eval\(\)"):
        apply(params, x)
    keys = jax.random.split(jax.random.key(0), 2)
    first, again, other = (apply(params, x, dropout_key=k) for k in (keys[0], keys[0], keys[1]))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    still = attnlens.from_torch(module.eval())[1](params, x)
    kept = np.asarray(first) != 0
    # Each of 64 entries is kept with probability ½: between 12 and 52 are kept, except in 1 of 10^6
    # cases.
    assert 12 < kept.sum() < 52
    np.testing.assert_allclose(np.asarray(first)[kept], 2 * np.asarray(still)[kept], rtol=1e-6)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: torch.relu, "takes a torch.nn.Module"),
        (lambda: torch.jit.script(nn.Linear(2, 2)), "TorchScript"),
        (lambda: nn.LazyLinear(2), "lazy"),
    ],
    ids=["function", "script", "lazy"],
)
@pytest.mark.filterwarnings("ignore:.*torch.jit.*", "ignore:Lazy modules")
def test_torch_modules_that_cannot_be_converted_raise_one_sentence(make, message):
    with pytest.raises(BadInput, match=message):
        attnlens.from_torch(make())


def test_torch_inputs_of_wrong_shape_raise_one_sentence():
    params, apply = attnlens.from_torch(nn.Linear(3, 2))
    with pytest.raises(BadInput, match="inputs of the same shapes"):
        apply(params, np.ones((2, 4), np.float32))
    with pytest.raises(BadInput, match=r"\['bias', 'weight'\]; got \['w'\]"):
        apply({"w": 1.0}, np.ones((2, 3), np.float32))
