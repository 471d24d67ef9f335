"""Worlds: latent-variable models that generate tokens, with exact posteriors where possible.

A world draws a latent z, then tokens that are independent given z. An exact world also computes the
posterior of z, the prediction at a query and the evidence of the tokens, in closed form.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
