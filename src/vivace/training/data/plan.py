"""How much of which data is made. Owns the figures alone: reading them needs no tokenizer and no parser."""

from dataclasses import dataclass


@dataclass(frozen=True)
class DataPlan:
    mutations: int = 0  # broken functions to make; of packages if there are some, else of the commits' files
    edits: int = 0  # functions with an exact request; of packages alone
    opens: int = 0  # functions with a request that has many answers; of packages alone
    max_tokens: int = 2048  # of an example, behind the prefix
    seed: int = 1
