from .inference import inference_error as inference_error
from .registry import INSTRUMENTS as INSTRUMENTS
from .sufficiency import representation as representation
from .transfer import condition_number as condition_number
from .transfer import known_condition_number as known_condition_number
