"""attnlens with other libraries: scikit-learn, PyTorch and pretrained transformers.

`AttentionClassifier`, `AttentionRegressor` and `KernelAttentionRegressor` are scikit-learn
estimators. `from_torch` and `torch_loss` convert PyTorch modules. `Bert` is a pretrained encoder.
Each library is imported when one of its names is first used.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
