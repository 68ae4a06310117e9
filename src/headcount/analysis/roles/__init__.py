"""What each head does, by the criteria of Voita et al. (2019), Section 5."""

from headcount.analysis.roles.criteria import Criteria
from headcount.analysis.roles.measure import find_roles
from headcount.analysis.roles.over_keep import RolesOverKeep, roles_over_keep
from headcount.analysis.roles.result import HeadRoles, Relation, Roles
from headcount.analysis.roles.sentences import Sentence, read_conllu, read_sentences

__all__ = [
    "Criteria",
    "HeadRoles",
    "Relation",
    "Roles",
    "RolesOverKeep",
    "Sentence",
    "find_roles",
    "read_conllu",
    "read_sentences",
    "roles_over_keep",
]
