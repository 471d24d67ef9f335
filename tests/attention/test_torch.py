"""Softmax and multi-head attention against PyTorch, in float32, forward and backward."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlens.attention import MultiHead, softmax

torch = pytest.importorskip("torch", reason="PyTorch is not installed (extra `torch`)")

EPSILON = float(np.finfo(np.float32).eps)


def draw():
    random = np.random.default_rng(0)
    shapes = ((2, 3, 10, 8), (2, 3, 17, 8), (2, 3, 17, 5), (2, 3, 10, 5))
    return [random.normal(size=shape).astype(np.float32) for shape in shapes]


@pytest.mark.parametrize("method", ["dense", "blocks"])
@pytest.mark.parametrize("masked", [False, True])
def test_softmax_equals_scaled_dot_product_attention(method, masked):
    query, key, value, weights = draw()
    mask = np.tril(np.ones((10, 17), bool)) if masked else None

    parts = [torch.tensor(x, requires_grad=True) for x in (query, key, value)]
    attention = torch.nn.functional.scaled_dot_product_attention
    theirs = attention(*parts, attn_mask=None if mask is None else torch.tensor(mask))
    (theirs * torch.tensor(weights)).sum().backward()

    def weighted_sum(parts):
        out = softmax(*parts, mask=None if mask is None else jnp.asarray(mask), method=method)
        return jnp.sum(out * weights), out

    gradient, ours = jax.grad(weighted_sum, has_aux=True)(
        tuple(map(jnp.asarray, (query, key, value)))
    )
    # Logits of at most 4 are sums of 8 products, a mean has 17 weights, and values are at most 4:
    # each of the two results has the error ε·(10·4 + 17)·4; a gradient sums 10 or 17 such terms.
    bound = EPSILON * (10 * 4 + 17) * 4
    np.testing.assert_allclose(ours, theirs.detach().numpy(), rtol=0, atol=bound)
    for actual, part in zip(gradient, parts, strict=True):
        assert part.grad is not None
        np.testing.assert_allclose(actual, part.grad.numpy(), rtol=0, atol=17 * bound)


def test_multihead_equals_torch_multihead_attention():
    layer = MultiHead(jax.random.key(0), dim=8, heads=2)
    layer = jax.tree.map(lambda x: x.astype(jnp.float32), layer)
    peer = torch.nn.MultiheadAttention(8, 2, bias=False, batch_first=True)
    with torch.no_grad():
        # PyTorch stacks the projections of all heads as rows of one matrix, applied from the left.
        stacked = [
            np.concatenate(np.asarray(w), -1).T for w in (layer.query, layer.key, layer.value)
        ]
        peer.in_proj_weight.copy_(torch.tensor(np.concatenate(stacked)))
        peer.out_proj.weight.copy_(torch.tensor(np.concatenate(np.asarray(layer.output)).T))
    tokens = np.random.default_rng(0).normal(size=(3, 6, 8)).astype(np.float32)
    theirs, _ = peer(*3 * [torch.tensor(tokens)])
    ours = layer(*3 * [jnp.asarray(tokens)])
    # The output results from three successive products with 8 terms of order 1, and a mean of 6
    # values.
    np.testing.assert_allclose(ours, theirs.detach().numpy(), rtol=0, atol=100 * EPSILON)
