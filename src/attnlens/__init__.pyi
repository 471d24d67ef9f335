from . import attention as attention
from . import data as data
from . import networks as networks
from . import worlds as worlds
from .instruments import attention_maps as attention_maps
from .instruments import condition_number as condition_number
from .instruments import curvature as curvature
from .instruments import equivariance as equivariance
from .instruments import exchangeability as exchangeability
from .instruments import generalisation as generalisation
from .instruments import guidelines as guidelines
from .instruments import inference_error as inference_error
from .instruments import known_condition_number as known_condition_number
from .instruments import learning_curve as learning_curve
from .instruments import representation as representation
from .instruments import stationarity as stationarity
from .instruments import surface as surface
from .instruments import tightening as tightening
from .records import Cell as Cell
from .records import Curve as Curve
from .records import Reading as Reading
from .records import Surface as Surface
from .records import Verdict as Verdict
from .verification import verify as verify

__version__: str
