"""Instruments on converted PyTorch modules."""

from importlib.util import find_spec
from pathlib import Path

import jax
import numpy as np
import pytest

import attnlens
from attnlens.instruments import Supervised
from attnlens.worlds import NormalMean

torch = pytest.importorskip("torch", reason="PyTorch is not installed (extra `torch`)")
if find_spec("torchax") is None:  # not imported: its import fails without the fixes of from_torch
    pytest.skip("torchax is not installed (extra `torch`)", allow_module_level=True)

nn = torch.nn
EPSILON = float(np.finfo(float).eps)


def test_curvature_and_surface_of_a_torch_module():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1))  # float32 by default
    random = np.random.default_rng(0)
    x, y = random.normal(size=(16, 2)), random.normal(size=(16, 1))
    params, apply = attnlens.from_torch(module)
    loss = Supervised("squared", apply)
    result = attnlens.curvature(loss, params, (x, y), steps=0)

    def by_torch(vector):
        starts, named = 0, {}
        for name in sorted(params):
            size = params[name].size
            named[name] = vector[starts : starts + size].reshape(params[name].shape)
            starts += size
        out = torch.func.functional_call(module.double(), named, torch.tensor(x))
        return ((out - torch.tensor(y)) ** 2).mean()

    vector = torch.tensor(np.concatenate([params[n].ravel() for n in sorted(params)]).astype(float))
    values = torch.linalg.eigvalsh(torch.autograd.functional.hessian(by_torch, vector)).numpy()
    # Rounding: 16 samples and paths of 7 products, four times for a Hessian product; 17 rows in
    # eigvalsh.
    bound = EPSILON * (4 * (16 + 7) + 17) * np.abs(values).max()
    assert abs(result.largest - values[-1]) <= bound
    assert abs(result.smallest - values[0]) <= bound
    assert (
        attnlens.curvature(loss, params, (x, y), matrix="gauss-newton", steps=0).smallest > -bound
    )
    picture = attnlens.surface(loss, params, (x, y), points=3)
    assert isinstance(picture, attnlens.Surface)
    assert abs(picture.values[1][1] - float(by_torch(vector))) <= 50 * EPSILON * result.loss


def test_torch_encoder_is_equivariant_and_drifting_outputs_are_not_exchangeable():
    torch.manual_seed(2)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, activation="gelu")
    module = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).double().eval()
    # Number of roundings per layer: projections of 8, scores of 4, 6 tokens, output of 8, twice 8
    # to 16, norms of 8.
    roundings = 2 * (8 + 4 + 6 + 8 + 8 + 16 + 16)
    params, apply = attnlens.from_torch(module)
    tokens = np.random.default_rng(0).normal(size=(6, 8))
    result = attnlens.equivariance(lambda x: apply(params, x[None])[0], tokens, permutations=4)
    # Norms keep entries of order one; sums in another order change outputs by these roundings.
    assert 0 < result.value <= 10 * roundings * EPSILON
    drifting = np.arange(6)[None, :, None] + np.random.default_rng(1).normal(size=(16, 6, 8))
    assert attnlens.exchangeability(apply(params, drifting), permutations=99).value <= 0.02


class Pooled(nn.Module):
    """A linear map of the mean token."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(1, 3)

    def forward(self, tokens):
        return self.linear(tokens.mean(-2))


def test_representation_and_transfer_of_a_torch_encoder():
    torch.manual_seed(0)
    params, apply = attnlens.from_torch(Pooled())
    result = attnlens.representation(
        lambda tokens: apply(params, tokens), NormalMean(), episodes=400, probes=("ridge",)
    )
    assert result.gap.value < 1e-6  # the token mean is sufficient here
    random = np.random.default_rng(0)
    z = random.normal(size=(300, 1))
    features = np.asarray(apply(params, z[:, None] + 0.0))[:, :1]
    kappa = attnlens.condition_number(features, z, 2 * z[:, 0], resamples=24).kappa
    assert abs(kappa.value - 2) < 1e-5  # one direction: κ is the ratio of the two targets


def test_the_torch_page_runs():
    text = (Path(__file__).parents[3] / "docs" / "torch.md").read_text()
    blocks = [part.split("```")[0] for part in text.split("```python\n")[1:]]
    namespace: dict[str, object] = {"__name__": "__page__"}
    with (
        jax.enable_x64(False),
        jax.numpy_rank_promotion("allow"),
        jax.numpy_dtype_promotion("standard"),
    ):
        for number, code in enumerate(blocks, 1):
            exec(compile(code, f"torch.md block {number}", "exec"), namespace)
    assert blocks
