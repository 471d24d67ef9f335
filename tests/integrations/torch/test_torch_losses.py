"""Curvature and surface of PyTorch modules without torchax, against closed forms."""

import numpy as np
import pytest

import attnlens
from attnlens.core.checks import BadInput
from attnlens.integrations import torch_loss

torch = pytest.importorskip("torch", reason="PyTorch is not installed (extra `torch`)")

nn, functional = torch.nn, torch.nn.functional
EPSILON = float(np.finfo(float).eps)


def regression(rows=12, features=4):
    random = np.random.default_rng(0)
    x, y = random.normal(size=(rows, features)), random.normal(size=(rows, 1))
    torch.manual_seed(0)
    return nn.Linear(features, 1), x, y


def test_torch_class_numbers_may_be_32_bit_integers():
    module = nn.Linear(3, 2)
    params, loss = torch_loss(module, functional.cross_entropy)
    x = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)
    classes = np.array([0, 1, 0, 1, 1, 0])
    values = [loss.value(params, (x, classes.astype(kind))) for kind in (np.int32, np.int64)]
    assert values[0] == values[1]


def test_torch_curvature_of_a_linear_model_equals_that_of_least_squares():
    module, x, y = regression()
    params, loss = torch_loss(module, functional.mse_loss)
    design = np.concatenate([np.ones((len(x), 1)), x], 1)  # the bias comes first, by name
    hessian = 2 * design.T @ design / len(x)
    values = np.linalg.eigvalsh(hessian)
    # Both computations have sums of 12 products and five rows in eigvalsh.
    bound = 2 * EPSILON * (12 + 5) * values[-1]
    for dense in (True, False):
        result = attnlens.curvature(loss, params, (x, y), dense=dense, steps=0, rtol=1e-12)
        assert abs(result.largest - values[-1]) <= bound
        assert abs(result.smallest - values[0]) <= bound
        # XTrace is exact with as many probes as parameters.
        assert abs(result.trace.value - np.trace(hessian)) <= 10 * bound
    residual = (
        design @ np.concatenate([params["bias"], params["weight"][0]]).astype(float) - y[:, 0]
    )
    assert abs(result.loss - np.mean(residual**2)) <= 20 * EPSILON * result.loss
    norm = np.linalg.norm(2 * design.T @ residual / len(x))
    assert abs(result.gradient_norm - norm) <= 40 * EPSILON * norm


def test_torch_chunks_give_the_same_curvature():
    module, x, y = regression()
    params, loss = torch_loss(module, functional.mse_loss)
    whole, parts = (
        attnlens.curvature(loss, params, (x, y), chunk=chunk, steps=0) for chunk in (None, 5)
    )
    assert abs(whole.largest - parts.largest) <= 40 * EPSILON * whole.largest
    assert abs(whole.loss - parts.loss) <= 40 * EPSILON * whole.loss


def test_torch_surface_of_a_linear_model_is_a_parabola():
    module, x, y = regression()
    params, loss = torch_loss(module, functional.mse_loss)
    along = [
        {"bias": np.array([1.0]), "weight": np.zeros((1, 4))},
        {"bias": np.array([0.0]), "weight": np.eye(4)[:1]},
    ]
    picture = attnlens.surface(loss, params, (x, y), directions=along, points=5)
    assert isinstance(picture, attnlens.Surface)
    start = x @ params["weight"][0].astype(float) + params["bias"].astype(float) - y[:, 0]
    expected = [[np.mean((start + a + b * x[:, 0]) ** 2) for a in picture.x] for b in picture.y]
    np.testing.assert_allclose(picture.values, expected, rtol=50 * EPSILON)


def test_torch_hessian_product_of_a_transformer_equals_double_backward():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(4, 2, 4, batch_first=True, dropout=0.0)
    module = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False).double().eval()
    random = np.random.default_rng(0)
    x, y = random.normal(size=(3, 3, 4)), random.normal(size=(3, 3, 4))
    params, loss = torch_loss(module, functional.mse_loss)
    direction = {name: random.normal(size=value.shape) for name, value in params.items()}
    ours = loss.product(params, direction, (x, y))
    from torch.nn.attention import SDPBackend, sdpa_kernel

    with sdpa_kernel(SDPBackend.MATH):
        names = dict(module.named_parameters())
        value = functional.mse_loss(module(torch.tensor(x)), torch.tensor(y))
        slope = torch.autograd.grad(value, list(names.values()), create_graph=True)
        along = sum(
            (g * torch.tensor(direction[n])).sum() for n, g in zip(names, slope, strict=True)
        )
        theirs = torch.autograd.grad(along, list(names.values()))
    size = max(float(t.abs().max()) for t in theirs)
    for name, expected in zip(names, theirs, strict=True):
        # A path has 30 products, and a Hessian product follows it four times; entries of order
        # `size` cancel.
        assert np.abs(ours[name] - expected.numpy()).max() <= 4 * 30 * EPSILON * size
    assert all(p.grad is None for p in module.parameters())
    assert torch.backends.mha.get_fastpath_enabled()


def test_torch_losses_with_dropout_or_invalid_arguments_raise_one_sentence():
    module = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5))
    params, loss = torch_loss(module, functional.mse_loss)
    before = torch.get_rng_state()
    with pytest.raises(BadInput, match=r"module\.eval\(\)"):
        attnlens.curvature(loss, params, (np.ones((2, 3)), np.ones((2, 3))))
    assert torch.equal(before, torch.get_rng_state())
    with pytest.raises(BadInput, match=r"takes a torch\.nn\.Module"):
        torch_loss(torch.relu, functional.mse_loss)
    params, loss = torch_loss(nn.Linear(3, 3), functional.mse_loss)
    with pytest.raises(BadInput, match=r"data=\(inputs, targets\)"):
        attnlens.curvature(loss, params)
    with pytest.raises(BadInput, match="gauss-newton"):
        attnlens.curvature(loss, params, (np.ones((2, 3)), np.ones((2, 3))), matrix="gauss-newton")
