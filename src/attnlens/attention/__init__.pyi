from .cme import cme as cme
from .registry import OPERATORS as OPERATORS
from .softmax import softmax as softmax
