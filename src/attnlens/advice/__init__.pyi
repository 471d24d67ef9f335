from .budget import Effort as Effort
from .inspection.inspecting import inspect as inspect
from .label_budget import samples as samples
from .loss_surface import landscape as landscape
from .rounds import advise as advise
from .token_order import order_matters as order_matters
from .transferability import transfer as transfer
