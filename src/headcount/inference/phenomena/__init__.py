"""All phenomena, in a table."""

from headcount.inference.phenomena.facts import FACTS
from headcount.inference.phenomena.kinds import KINDS
from headcount.inference.phenomena.orders import ORDERS
from headcount.inference.phenomena.properties import PROPERTIES
from headcount.inference.phenomena.quantifiers import QUANTIFIERS
from headcount.inference.phenomena.roles import ROLES

PHENOMENA = [*QUANTIFIERS, *ORDERS, *ROLES, *KINDS, *FACTS, *PROPERTIES]
