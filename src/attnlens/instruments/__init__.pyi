from .hessian import Curvature as Curvature
from .hessian import curvature as curvature
from .inference import inference_error as inference_error
from .products import Supervised as Supervised
from .registry import INSTRUMENTS as INSTRUMENTS
