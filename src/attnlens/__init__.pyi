from . import attention as attention
from . import networks as networks
from . import worlds as worlds
from .instruments import guidelines as guidelines
from .instruments import inference_error as inference_error
from .instruments import learning_curve as learning_curve
from .records import Cell as Cell
from .records import Curve as Curve
from .records import Reading as Reading
from .records import Verdict as Verdict
from .verification import verify as verify

__version__: str
