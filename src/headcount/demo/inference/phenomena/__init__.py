"""All phenomena, in a table."""

from headcount.demo.inference.phenomena.facts import FACTS
from headcount.demo.inference.phenomena.kinds import KINDS
from headcount.demo.inference.phenomena.orders import ORDERS
from headcount.demo.inference.phenomena.properties import PROPERTIES
from headcount.demo.inference.phenomena.quantifiers import QUANTIFIERS
from headcount.demo.inference.phenomena.roles import ROLES

PHENOMENA = [*QUANTIFIERS, *ORDERS, *ROLES, *KINDS, *FACTS, *PROPERTIES]
