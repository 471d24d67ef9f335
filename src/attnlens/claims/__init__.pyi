from .base import Claim as Claim
from .base import Measured as Measured
from .base import Profile as Profile
from .base import Work as Work
from .base import blocks as blocks
from .registry import CLAIMS as CLAIMS
from .registry import find as find
