"""A lowered loss: its statements of C by stage, the arrays they need, and the gradients.

A sum over all samples is known when the last of them has been looked at. What follows from it, and what every
sample makes of that, comes in the next stage: a stage is work on the client's own numbers, then a loop over
samples and one over rows. A tensor of one sample lives in registers, unless a later stage needs it.
"""

from collections import Counter
from dataclasses import dataclass, field

from fedrec.federation.engines.fused.gpu_blocks import Local
from fedrec.federation.engines.fused.gpu_samples import Reader
from fedrec.federation.engines.fused.nodes import Constant, Leaf, Node, Reindexed


@dataclass
class Stage:
    """The statements of a stage, and the sums that its loops make: the first of each, and how many."""

    in_blocks: bool = False
    """Whether a GPU's lanes look at samples block by block."""
    client: list[str] = field(default_factory=list)
    wide: list[str] = field(default_factory=list)
    """What lanes compute of all samples together, number by number, before anything else."""
    turns: dict[int, list[str]] = field(default_factory=dict)
    """What is done with a sample, by the loop over samples that does it."""
    tiles: dict[int, list[str]] = field(default_factory=dict)
    """What a CPU does with a block of samples at once, by its turn among those loops."""
    row: list[str] = field(default_factory=list)
    together: dict[int, list[str]] = field(default_factory=dict)
    """What lanes of a GPU do together with samples, by its turn; none of it comes in the first."""
    sums: int = 0
    late_sums: int = 0
    """Those that a GPU's loops behind the first make."""
    highest: int = 0
    late_highest: int = 0
    """The same of the largest numbers of samples or rows."""
    turned: dict[str, str] = field(default_factory=dict)
    """Matrices that lie the other way for products, and where they are turned to."""
    multiplied: Counter[int] = field(default_factory=Counter)
    """Products of every sample with a matrix that a turn has so far."""
    before: list[str] = field(default_factory=list)
    behind: list[str] = field(default_factory=list)
    """What lanes do before the first and behind the last block, for sums over all of them."""

    @property
    def loops(self) -> list[list[str]]:
        """What each loop over samples does, in the order of the loops."""
        return [lines for _, lines in sorted(self.turns.items())]

    @property
    def parts(self) -> list[tuple[int, list[str], bool]]:
        """All that is done with samples, by turns, and whether it is done with a block of them at once."""
        both = [(turn, lines, False) for turn, lines in self.turns.items()]
        both += [(turn, lines, True) for turn, lines in self.tiles.items()]
        return sorted(both, key=lambda part: part[0])

    @property
    def sample(self) -> list[str]:
        """All that is done with a sample."""
        return [line for lines in self.loops for line in lines]


@dataclass(frozen=True)
class Gradient:
    """The gradient by a leaf: an expression for each element of a client or row; of samples it is stored."""

    node: Node
    reader: Reader
    is_direct: bool = False
    """Whether it is an expression for samples, too, and nothing is stored."""

    def at(self, *index: str) -> str:
        """The expression of an element."""
        return self.reader.read(self.node, index)

    @property
    def is_zero(self) -> bool:
        """Whether the loss does not depend on the leaf."""
        node = self.node
        while isinstance(node, Reindexed):
            (node,) = node.inputs
        return isinstance(node, Constant) and node.value == 0


@dataclass
class Lowered:
    """The code of a step's loss and gradients."""

    stages: list[Stage]
    leaves: dict[Leaf, tuple[int, ...]]
    """What it reads, and its shape."""
    arrays: dict[str, int]
    """Arrays of the client, by name, and their numbers."""
    kept: dict[str, int]
    """Arrays of one entry per sample, by name, and the numbers in an entry."""
    locals: list[Local]
    """Arrays of a block of samples."""
    constants: list[float]
    """Numbers to be given with each call."""
    loss: str
    gradients: dict[Leaf, Gradient]
