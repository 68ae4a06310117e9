"""All phenomena. Their order is part of the task: with a seed, it decides which pairs are drawn."""

from headcount.demo.inference.phenomena.logical_words import CONNECTIVES, QUANTIFIERS
from headcount.demo.inference.phenomena.relations import ORDERS, ROLES
from headcount.demo.inference.phenomena.word_meanings import KINDS, PROPERTIES

PHENOMENA = [*QUANTIFIERS, *ORDERS, *ROLES, *KINDS, *CONNECTIVES, *PROPERTIES]
