from .groups import Progress as Progress
from .settings import Member as Member
from .settings import TrainingSettings as TrainingSettings
from .stationary import StationaryPoint as StationaryPoint
from .stationary import StationaryPoints as StationaryPoints
from .stationary import stationary_points as stationary_points
from .trainer import Fitted as Fitted
from .trainer import fit as fit
