from .advice_on_data import advise as advise
from .landscapes import landscape as landscape
from .transferring import transfer as transfer
