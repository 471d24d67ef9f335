from .advice import guidelines as guidelines
from .inference import inference_error as inference_error
from .learning import learning_curve as learning_curve
from .registry import INSTRUMENTS as INSTRUMENTS
