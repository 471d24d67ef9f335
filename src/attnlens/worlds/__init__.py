"""Where tokens come from: latent-variable worlds whose exact answers are known.

A world draws a latent z, then tokens that are independent given z. An exact world also knows the
posterior of z, the prediction for a query and the evidence of the tokens, in closed form.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
