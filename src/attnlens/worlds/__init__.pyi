from .base import Episode as Episode
from .base import ExactWorld as ExactWorld
from .base import Gaussian as Gaussian
from .base import Pairs as Pairs
from .base import World as World
from .gaussian_process import GaussianProcess as GaussianProcess
from .linear_regression import LinearRegression as LinearRegression
from .registry import EXAMPLES as EXAMPLES
