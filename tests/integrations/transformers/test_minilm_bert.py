"""BERT in JAX: tokeniser and encoder, compared with a computation by hand and with torch."""

import math

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

from attnlens.core.checks import BadInput
from attnlens.integrations import Bert, WordPiece
from attnlens.integrations.transformers import minilm
from attnlens.integrations.transformers.wordpiece import SPECIAL
from small_bert import WORDS, arrays, encoder, reviews, rows

pytest.importorskip("tokenizers", reason="tokenizers is not installed (extra `transformers`)")

SINGLE = float(np.finfo(np.float32).eps)


# -- the tokeniser ---------------------------------------------------------------------------------


def test_words_are_cut_greedily_into_pieces():
    pieces = [*SPECIAL, "play", "##ing", "##in", "##g", "p", "un", "##able", "##a", "!", "好"]
    tokeniser = WordPiece({piece: i for i, piece in enumerate(pieces)})
    assert tokeniser.pieces("Playing, pla好 ÚNABLE!") == [
        "play",
        "##ing",
        "[UNK]",
        "[UNK]",
        "好",
        "un",
        "##able",
        "!",
    ]
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
    expected = first, norm(f"{layer}.output.LayerNorm", h + inner)
    states = Bert.of(named, heads=2).represent(jnp.asarray(numbers), jnp.asarray(mask))
    for mine, theirs in zip(states, expected, strict=True):
        # Paths of 60 products of order one are scaled to order one: an error of ε each, with a
        # factor of ten.
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
            for a, b in (
                ("self_attn.out_proj", "attention.output.dense"),
                ("linear1", "intermediate.dense"),
                ("linear2", "output.dense"),
                ("norm1", "attention.output.LayerNorm"),
                ("norm2", "output.LayerNorm"),
            ):
                state[f"{theirs}.{a}.{kind}"] = named[f"{ours}.{b}.{kind}"]
    peer.load_state_dict({name: torch.tensor(array) for name, array in state.items()})
    numbers, mask = jnp.asarray([0, 5, 7, 9, 1, 3]), jnp.asarray([True] * 5 + [False])
    states = mine.represent(numbers, mask)
    with torch.no_grad():
        padding = torch.tensor(~np.asarray(mask))[None]
        last = peer(torch.tensor(np.array(states[0]))[None], src_key_padding_mask=padding)[0]
    # There are two layers of 60 products; norms keep entries of order one.
    np.testing.assert_allclose(
        states[-1][:5], last[:5].numpy(), rtol=0, atol=1200 * np.finfo(float).eps
    )


@pytest.mark.slow
def test_bert_equals_torch_hugging_face():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed (extra `torch`)")
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    settings = transformers.BertConfig(
        vocab_size=len(SPECIAL) + len(WORDS),
        hidden_size=8,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=40,
    )
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


def test_invalid_weights_and_inputs_of_bert_raise_one_sentence(tmp_path):
    named = arrays()
    del named["encoder.layer.1.output.dense.bias"]
    with pytest.raises(BadInput, match=r"must hold encoder\.layer\.1\.output\.dense\.bias"):
        Bert.of(named, heads=2)
    with pytest.raises(BadInput, match="multiple of heads"):
        Bert.of(arrays(), heads=3)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(BadInput, match="cannot be read"):
        Bert.read(tmp_path / "model.safetensors", tmp_path / "config.json")
    with pytest.raises(BadInput, match="at most 40 tokens; got 41"):
        encoder().model.represent(jnp.zeros(41, int))


def test_weights_are_read_from_a_safetensors_file(tmp_path):
    from safetensors.numpy import save_file

    save_file(arrays(), tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text('{"num_attention_heads": 2, "hidden_act": "gelu"}')
    read = Bert.read(tmp_path / "model.safetensors", tmp_path / "config.json")
    assert eqx.tree_equal(read, Bert.of(arrays(), heads=2))


def test_padding_and_batches_do_not_change_representations():
    small, texts = encoder(), ["the film", "a plot with actors that", "good"]
    whole = small.pooled(*small.read(texts))
    assert whole.shape == (3, 3, 8)
    alone = small.pooled(*small.read(texts[2:]))[:, 0]
    # Padding adds zeros to sums of 8 tokens, on paths of 60 products through two layers.
    np.testing.assert_allclose(whole[:, 2], alone, rtol=0, atol=1200 * np.finfo(float).eps)
    tokens = minilm.embed(reviews(3, words=4), tokens=8, encoder=small)
    assert tokens.kind == "tokens"
    assert tokens.array.shape == (3, 8, 8)
    np.testing.assert_array_equal(tokens.array[:, 6:], 0)  # only four words, [CLS] and [SEP]
    numbers, mask = small.read(reviews(3, words=4))
    # Entries are of order one and stored in float32.
    mean, bound = tokens.array[:, :6].mean(1), 4 * SINGLE
    np.testing.assert_allclose(mean, small.pooled(numbers, mask)[-1], rtol=0, atol=bound)
    with pytest.raises(BadInput, match=r"reads texts; got rows \(toy\)"):
        minilm.embed(rows(), encoder=small)
