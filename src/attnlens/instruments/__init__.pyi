from .inference import inference_error as inference_error
from .learned import generalisation as generalisation
from .registry import INSTRUMENTS as INSTRUMENTS
