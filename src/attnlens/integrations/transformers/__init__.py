"""Pretrained encoders, and measurements of their layers."""

from . import minilm as minilm
