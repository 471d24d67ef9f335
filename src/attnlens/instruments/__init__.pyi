from .exchange import exchangeability as exchangeability
from .inference import inference_error as inference_error
from .learned import generalisation as generalisation
from .martingale import wealth as wealth
from .registry import INSTRUMENTS as INSTRUMENTS
from .symmetry import equivariance as equivariance
