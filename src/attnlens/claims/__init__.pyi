from .claim import Claim as Claim
from .claim import Measured as Measured
from .claim import Profile as Profile
from .claim import Work as Work
from .claim import blocks as blocks
from .registry import CLAIMS as CLAIMS
from .registry import find as find
