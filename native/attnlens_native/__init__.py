"""Native libraries of attnlens as data files; `attnlens.attention.native.wheel` loads them."""
