from .engines.ray_map import RayMap as RayMap
from .loading import LoadedRun as LoadedRun
from .pages import write_comparison as write_comparison
from .pages import write_report as write_report
from .planning import Plan as Plan
from .planning import cells_of as cells_of
from .planning import plan as plan
from .store.store import Store as Store
