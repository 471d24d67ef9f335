"""`attnlens.inspect` on models of `transformers`: many architectures, and a model whose heads are
known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attnlens
from attnlens.advice.inspection import collection
from attnlens.core import BadInput, Inspection
from small_transformers import (
    CONFIGS,
    WORDS,
    induction_gpt2,
    make_model,
    save,
    texts,
    tokenizer,
)

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
from attnlens.integrations.transformers.model_folder import load_folder  # noqa: E402 (after importorskip)
from attnlens.integrations.transformers.subjects import TextModel  # noqa: E402 (after importorskip)

PLAIN = ("bert", "roberta", "albert", "distilbert", "gpt2", "llama", "qwen2", "vit")
DECODERS = ("gpt2", "llama", "qwen2")


def pictures(count: int = 6) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (count, 20, 20, 3), dtype=np.uint8)


@pytest.mark.parametrize("kind", CONFIGS)
def test_every_architecture_is_measured(kind: str, tmp_path: Path):
    model = make_model(kind)
    inputs = pictures() if kind == "vit" else texts(6)
    result = attnlens.inspect(save(model, tmp_path), inputs)
    assert result["order"].at == (0, 1, 2)
    if kind != "vit":  # one token per word, [CLS] and [SEP]
        lengths = [len(line.split()) + 2 for line in inputs]
        assert dict(result.facts)["texts"] == f"6, of {min(lengths)} to {max(lengths)} tokens"
    assert [len(row) for row in result["effective tokens"].by_head] == [2, 2]
    assert len(result.sentences) == 5
    assert ("distance to the ridge estimate" in result) == (kind in PLAIN)
    assert ("variance passed" in result) == (kind != "deberta-v2")
    assert dict(result.facts)["kind"].startswith("decoder") == (kind in DECODERS)
    assert ("pairs" in result) == (kind in PLAIN)
    if "pairs" in result:
        # Rounding in float32 is 6e−8 per operation and is squared here; a true effect is of order
        # one.
        worst = max(reading.value for reading in result["pairs"].by_layer)
        assert worst > 1e-3 if kind in DECODERS else worst < 1e-9


@pytest.mark.parametrize(
    ("kind", "lacks"), [("gptj", "subsets"), ("longformer", "heads"), ("fnet", "heads")]
)
def test_what_an_architecture_does_not_give_is_said(kind: str, lacks: str, tmp_path: Path):
    result = attnlens.inspect(save(make_model(kind), tmp_path), texts(6))
    assert any(lacks in name for name in dict(result.missing))
    assert result["order"].by_layer[2].value > 0


def test_an_encoder_that_counts_positions_from_its_padding_leaves_pairs(tmp_path: Path):
    long = [" ".join(texts(4, seed=i)) for i in range(3)]  # as long as the positions allow
    result = attnlens.inspect(save(make_model("esm"), tmp_path), long)
    assert max(reading.value for reading in result["pairs"].by_layer) < 1e-9
    assert dict(result.facts)["cut"] == "3 texts longer than 63 tokens were cut"


def test_layers_of_unequal_numbers_of_tokens_are_refused(tmp_path: Path):
    with pytest.raises(BadInput, match="cannot be compared token by token"):
        attnlens.inspect(save(make_model("swin"), tmp_path), pictures())


def test_weights_that_are_not_numbers_are_refused(tmp_path: Path):
    model = make_model("bert")
    with torch.no_grad():
        model.encoder.layer[1].output.dense.weight[0, 0] = torch.nan
    with pytest.raises(BadInput, match="layer 2 hold NaN"):
        attnlens.inspect(save(model, tmp_path), texts(4))


@pytest.mark.parametrize("kind", ["llama", "t5"])
def test_recorded_hidden_states_and_weights_are_those_of_the_library(kind: str, tmp_path: Path):
    folder = save(make_model(kind), tmp_path)
    subject = TextModel(load_folder(folder), texts(2), "model", 64)
    recording = subject.record(subject.rows)
    plain = transformers.AutoModel.from_pretrained(folder, attn_implementation="eager")
    plain = plain.get_encoder() if kind == "t5" else plain
    for index, row in enumerate(subject.rows):
        with torch.inference_mode():
            expected = plain.eval()(
                input_ids=torch.from_numpy(row[None]),
                output_hidden_states=True,
                output_attentions=True,
            )
        for layer in range(2):
            hidden = [*recording.each(recording.hidden, layer + 1)][index]
            assert np.abs(hidden - expected.hidden_states[layer + 1][0].numpy()).max() < 1e-5
            weights = [*recording.each(recording.weights, layer)][index]
            assert np.abs(weights - expected.attentions[layer][0].numpy()).max() < 1e-6


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Inspection:
    return attnlens.inspect(save(induction_gpt2(), tmp_path_factory.mktemp("known")), texts(8))


def test_the_induction_head_is_found(known: Inspection):
    values = [[reading.value for reading in row] for row in known["induction"].by_head]
    assert values[1][0] > 0.9
    assert max(values[0][0], values[0][1], values[1][1]) < 0.1
    assert "1 (2.1) do induction" in known.sentences[2]


def test_order_that_leaves_the_mean_token_is_not_called_irrelevant(known: Inspection):
    """Each token writes the one before it. So mean tokens do not depend on order, but single tokens
    do."""
    assert max(reading.value for reading in known["order"].by_layer) < 1e-9
    assert known["order of single tokens"].by_layer[1].interval()[0] > 0.1
    assert known.sentences[0].startswith(
        "Order does not change the mean token of any layer, but it"
    )


def test_a_head_that_looks_at_positions_is_found(known: Inspection):
    names = ("attention on the previous token", "attention that stays")
    previous, stays = (known[name].by_head[0][0] for name in names)
    assert previous.value > 0.99
    assert stays.value > 0.99
    assert known["attention that follows"].by_head[0][0].value < 0.3


def test_a_uniform_head_uses_all_tokens_that_it_sees(known: Inspection):
    """A uniform row over i tokens has entropy H with e^H = i; rounding of float32 is 6e−8."""
    for row in known["share of tokens used"].by_head:
        assert row[1].value == pytest.approx(1, abs=1e-6)
    for row in known["variance passed"].by_head:
        assert row[1].value < 1e-9 or np.isnan(row[1].value)


def test_a_bag_of_words_has_order_zero(tmp_path: Path):
    model = make_model("bert")
    with torch.no_grad():
        model.embeddings.position_embeddings.weight.zero_()
    result = attnlens.inspect(save(model, tmp_path), texts(8))
    assert max(reading.value for reading in result["order"].by_layer) < 1e-9
    assert result.sentences[0].startswith("Order does not matter")


def test_a_label_that_the_words_hold_is_found_by_a_probe(tmp_path: Path):
    labels = ["cat" if i % 2 else "dog" for i in range(60)]
    both = zip(labels, texts(60), strict=True)
    lines = [" ".join([label] * 6 + line.split()[:18]) for label, line in both]
    result = attnlens.inspect(save(make_model("bert"), tmp_path), lines, labels, layers=[2])
    assert result["probe error"].by_layer[0].interval()[1] < 0.2
    assert result["effective tokens"].at == (2,)
    assert {"LogME", "H-score"} <= set(result.names)


def test_the_next_token_is_predicted_where_the_present_one_determines_it(tmp_path: Path):
    """Layer 0 of this model is the token and its position, one-hot. In texts that go round the
    vocabulary, the next token is a linear function of the present one, except for the first of 26
    tokens. In random texts it is unknown. 360 tokens determine the map, because a layer has 26 + 64
    directions that vary."""
    folder = save(induction_gpt2(), tmp_path)
    turns = [" ".join((WORDS[i % 13 :] + WORDS * 2)[:26]) for i in range(120)]
    known, random = (attnlens.inspect(folder, lines, layers=[1]) for lines in (turns, texts(120)))
    assert known["held-out token error"].by_layer[0].interval()[1] < 0.1
    assert random["held-out token error"].by_layer[0].interval()[1] > 0.95


def test_a_run_that_was_stopped_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(collection, "LARGEST_BATCH", 4)
    folder, out = save(make_model("bert"), tmp_path / "model"), tmp_path / "out"

    def stop(done: int, total: int) -> None:
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        attnlens.inspect(folder, texts(12), keep=out, progress=stop)
    whole = attnlens.inspect(folder, texts(12))
    again = attnlens.inspect(folder, texts(12), keep=out)
    assert dict(again.facts)["continued"] == "2 finished batches were read"
    assert again.measures == whole.measures
    assert again.profiles == whole.profiles
    other = attnlens.inspect(folder, texts(12), keep=out, seed=1)
    assert "continued" not in dict(other.facts)


def test_a_tokenizer_that_does_not_know_the_words_is_said(tmp_path: Path):
    folder = save(make_model("bert"), tmp_path, ("of", "another"))
    assert "[UNK]" in dict(attnlens.inspect(folder, texts(4)).facts)["unknown tokens"]


def spoil(folder: Path, how: str) -> None:
    config = json.loads((folder / "config.json").read_text())
    match how:
        case "no config":
            (folder / "config.json").unlink()
        case "unknown":
            (folder / "config.json").write_text(json.dumps({**config, "model_type": "mine"}))
        case "pickle":
            (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
        case "other weights":
            (folder / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 3}))
        case "no tokenizer":
            for file in folder.glob("tokenizer*"):
                file.unlink()
        case "other sizes":
            (folder / "config.json").write_text(json.dumps({**config, "intermediate_size": 32}))
        case "broken":
            whole = (folder / "model.safetensors").read_bytes()
            (folder / "model.safetensors").write_bytes(whole[: len(whole) // 2])
        case "tokenizer":
            tokenizer(tuple(map(str, range(40)))).save_pretrained(folder)


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("no config", "must hold config.json"),
        ("unknown", "architecture 'mine'"),
        ("pickle", "a pickle, which could run code"),
        ("other weights", "must belong together"),
        ("other sizes", "6 arrays .* have other shapes than config.json says"),
        ("broken", r"cannot be loaded \("),
        ("no tokenizer", "must have a vocabulary; there is none"),
        ("tokenizer", "use the tokenizer that belongs to the model"),
    ],
)
def test_a_folder_that_cannot_be_used_is_one_sentence(how: str, says: str, tmp_path: Path):
    folder = save(make_model("bert"), tmp_path)
    spoil(folder, how)
    with pytest.raises(BadInput, match=says):
        attnlens.inspect(folder, texts(4))


@pytest.mark.parametrize(
    ("inputs", "labels", "says"),
    [
        ([" ", ""], None, "every text is empty"),
        (texts(4), ["a"] * 4, "at least two classes"),
        (texts(4), [0, 1, 0, 1], "at least 5 inputs"),
        (None, None, "needs inputs"),
        ([Path("a.png"), Path("b.png")], None, "reads texts; got images"),
        (np.zeros((4, 5), int), None, "reads texts; got an array of numbers"),
    ],
)
def test_inputs_that_cannot_be_used_are_one_sentence(inputs: Any, labels: Any, says: str, tmp_path):
    folder = save(make_model("bert"), tmp_path)
    with pytest.raises(BadInput, match=says):
        attnlens.inspect(folder, inputs, labels)


def test_texts_for_an_image_model_are_one_sentence(tmp_path: Path):
    with pytest.raises(BadInput, match=r"reads images; got texts; give images"):
        attnlens.inspect(save(make_model("vit"), tmp_path), texts(4))


def test_texts_longer_than_the_positions_are_cut_and_it_is_said(tmp_path: Path):
    folder = save(make_model("bert"), tmp_path)
    long = [" ".join(texts(4, seed=i)) for i in range(3)]
    result = attnlens.inspect(folder, long, tokens=500)
    assert dict(result.facts)["cut"] == "3 texts longer than 64 tokens were cut"


def test_the_folder_of_an_image_can_be_its_label(tmp_path: Path):
    from PIL import Image

    from attnlens.cli.inspect import read_inputs

    for name in ("cat/1", "cat/2", "dog/1"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        Image.fromarray(pictures(1)[0]).save(tmp_path / f"{name}.png")
    options = (None, "text", tmp_path, None)
    assert read_inputs(*options, "folder", 480, 0)[1] == ["cat", "cat", "dog"]
    assert read_inputs(*options, None, 480, 0)[1] is None
    with pytest.raises(BadInput, match="must be folder; got 'kind'"):
        read_inputs(*options, "kind", 480, 0)


def test_the_command_prints_sentences_or_json_and_writes_a_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    from in_process import run

    folder = save(make_model("gpt2"), tmp_path / "model")
    (tmp_path / "t.csv").write_text("words,kind\n" + "".join(f"{t},a\n" for t in texts(4)))
    monkeypatch.chdir(tmp_path)
    words = ("inspect", folder, "--text", "t.csv", "--column", "words", "--out", "out")
    done = run(*words, "--json")
    assert done.returncode == 0, done.stderr
    content = json.loads(done.stdout)
    assert len(content["summary"]) == 5
    assert Path(content["page"]).stat().st_size > 100_000
    refused = run(*words, "--label", "kind")
    assert refused.returncode == 2
    assert "at least two classes" in refused.stderr
