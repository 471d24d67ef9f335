from .ensemble import Fitted as Fitted
from .ensemble import fit as fit
from .groups import Progress as Progress
from .settings import Member as Member
from .settings import TrainingSettings as TrainingSettings
from .stationary import StationaryPoint as StationaryPoint
from .stationary import StationaryPoints as StationaryPoints
from .stationary import stationary_points as stationary_points
