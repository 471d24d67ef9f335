from .inference import inference_error as inference_error
from .registry import INSTRUMENTS as INSTRUMENTS
from .sufficiency import representation as representation
