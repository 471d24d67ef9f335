"""Names of `attnlens.training` that users import from `attnlens.networks`."""

from attnlens.training.groups import Progress
from attnlens.training.settings import Member, TrainingSettings
from attnlens.training.stationary import StationaryPoint, StationaryPoints, stationary_points
from attnlens.training.trainer import Fitted, fit

__all__ = [
    "Fitted",
    "Member",
    "Progress",
    "StationaryPoint",
    "StationaryPoints",
    "TrainingSettings",
    "fit",
    "stationary_points",
]
