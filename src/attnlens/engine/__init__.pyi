from .base import Outcome as Outcome
from .local import run as run
