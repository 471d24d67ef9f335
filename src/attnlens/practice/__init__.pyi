from .advice_on_data import advise as advise
from .labels_needed import samples as samples
from .landscapes import landscape as landscape
from .ordering import order_matters as order_matters
from .transferring import transfer as transfer
