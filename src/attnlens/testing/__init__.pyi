from .claim_contract import check_claim as check_claim
from .claim_contract import check_lens as check_lens
from .operator_contract import check_operator as check_operator
from .world_contract import check_world as check_world
