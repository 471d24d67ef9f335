"""A vision transformer to be measured by `inspect`: patches of images are its tokens."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from attnlens.core import checks
from attnlens.instruments.layers.recording import Recording

from .model_folder import LoadedFolder
from .subjects import TorchSubject

MOST_ENTRIES = 200_000  # files and folders that are looked at; a few seconds on a slow disk
IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp")


class ImageModel(TorchSubject):
    """A vision transformer with a folder of images, or an array (n, height, width[, channels])."""

    def __init__(self, loaded: LoadedFolder, images: Any, name: str):
        super().__init__(loaded, name)
        self._settings = loaded.images or {}
        size, patch = self.config.image_size, self.config.patch_size
        self._size = (size, size) if isinstance(size, int) else tuple(size)
        self._patch = (patch, patch) if isinstance(patch, int) else tuple(patch)
        self.rows = [self._pixels(image) for image in opened_images(images)]
        self._patches = int(np.prod([s // p for s, p in zip(self._size, self._patch, strict=True)]))
        first = self.record(self.rows[:1])
        self._before = first.hidden[0].shape[1] - self._patches  # class and register tokens
        if self._before < 0:
            raise checks.BadInput(
                f"a vision transformer must have one token per patch, {self._patches} here; the "
                f"architecture {self.config.model_type!r} has {first.hidden[0].shape[1]}, so it "
                f"cannot be inspected."
            )
        self.lengths = np.full(len(self.rows), first.hidden[0].shape[1])
        self.moves_pairs = hasattr(self.module, "embeddings") and first.has_heads
        self.notes = (
            (
                "images",
                f"{len(self.rows):,}, {self._size[0]} × {self._size[1]} pixels, "
                f"{self._patches} patches each",
            ),
        )

    def _pixels(self, image: Any) -> np.ndarray:
        """An image as an array (channels, height, width), resized and standardised.

        Size, mean and standard deviation are those of the model's configuration.
        """
        channels = getattr(self.config, "num_channels", 3)
        resized = image.convert("L" if channels == 1 else "RGB").resize(self._size[::-1])
        array = np.asarray(resized, np.float32).reshape(*self._size, channels) / 255
        mean = np.asarray(self._settings.get("image_mean", [0.5] * channels), np.float32)
        std = np.asarray(self._settings.get("image_std", [0.5] * channels), np.float32)
        return ((array - mean) / std).transpose(2, 0, 1)

    def record(
        self, rows: Sequence[np.ndarray], orders: Sequence[np.ndarray] | None = None
    ) -> Recording:
        import torch

        pixels = torch.from_numpy(np.stack(rows).astype(np.float32))
        handle = None
        if orders is not None:  # tokens are permuted after position embeddings have been added
            index = torch.from_numpy(np.stack(orders))[..., None]

            def permute(module: Any, arguments: Any, output: Any) -> Any:
                return output.gather(1, index.expand(-1, -1, output.shape[-1]))

            handle = self.module.embeddings.register_forward_hook(permute)
        try:
            recording = self._record(np.zeros(len(rows), int), pixel_values=pixels)
        finally:
            if handle is not None:
                handle.remove()
        recording.lengths[:] = recording.hidden[0].shape[1]
        return recording

    def movable(self, index: int) -> np.ndarray:
        return np.arange(self._before, self._before + self._patches)

    def shuffled(self, index: int, order: np.ndarray) -> np.ndarray:
        (height, width), pixels = self._patch, self.rows[index]
        rows, columns = (s // p for s, p in zip(self._size, self._patch, strict=True))
        blocks = pixels[:, : rows * height, : columns * width]
        blocks = blocks.reshape(len(pixels), rows, height, columns, width).transpose(1, 3, 0, 2, 4)
        moved = blocks.reshape(rows * columns, len(pixels), height, width)
        moved = moved[order[self._before :] - self._before].reshape(blocks.shape)
        return np.ascontiguousarray(
            moved.transpose(2, 0, 3, 1, 4).reshape(len(pixels), rows * height, columns * width)
        )

    def token_names(self, index: int) -> list[str]:
        columns = self._size[1] // self._patch[1]
        patches = [f"{i // columns + 1}:{i % columns + 1}" for i in range(self._patches)]
        return [f"[{i + 1}]" for i in range(self._before)] + patches


def image_files(folder: Path) -> list[Path]:
    """The images in a folder and its subfolders, by name; links to folders are not followed."""
    seen, files = 0, []
    for place, folders, names in os.walk(folder):
        seen += len(folders) + len(names)
        if seen > MOST_ENTRIES:
            raise checks.BadInput(
                f"--images must name a folder with at most {MOST_ENTRIES:,} files and subfolders; "
                f"{folder} has more; name one of its subfolders."
            )
        files += [Path(place, name) for name in names if Path(name).suffix.lower() in IMAGES]
    files.sort()
    if not files:
        raise checks.BadInput(
            f"--images must name a folder of images ({', '.join(IMAGES)}); {folder} has none."
        )
    return files


def opened_images(images: Any) -> Iterator[Any]:
    """Images of PIL, one after the other: photographs take more memory than their pixels here.

    PIL refuses files that would unpack to more than some 180 million pixels.
    """
    from PIL import Image, UnidentifiedImageError

    if isinstance(images, str | Path):
        images = image_files(Path(images))
    if not (isinstance(images, list | tuple) and all(isinstance(f, Path) for f in images)):
        array = np.asarray(images)
        if array.ndim not in (3, 4) or not len(array):
            raise checks.BadInput(
                f"images must be a folder or an array (n, height, width); got {array.shape}."
            )
        if array.dtype != np.uint8:
            raise checks.BadInput(
                f"images must be whole numbers from 0 to 255 (uint8); got {array.dtype}."
            )
        yield from map(Image.fromarray, array)
        return
    for file in images:
        try:
            with file.open("rb") as opened:  # PIL does not close a file that it refuses
                image = Image.open(opened).convert("RGB")
        except (OSError, UnidentifiedImageError, Image.DecompressionBombError) as error:
            raise checks.BadInput(f"the image {file} cannot be read ({error}).") from error
        yield image
