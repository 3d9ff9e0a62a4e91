"""A lowered loss: its statements of C by stage, the arrays they need, and the gradients.

A sum over all samples is known when the last of them has been looked at. What follows from it, and what every
sample makes of that, comes in the next stage: a stage is work on the client's own numbers, then a loop over
samples and one over rows. A tensor of one sample lives in registers, unless a later stage needs it.
"""

from collections import Counter
from dataclasses import dataclass, field

from fedrec.federation.engines.fused.backend.cuda.blocks import Local
from fedrec.federation.engines.fused.backend.reader import Reader
from fedrec.federation.engines.fused.ir.dims import Shape
from fedrec.federation.engines.fused.ir.index import IndexExpr
from fedrec.federation.engines.fused.ir.nodes import Constant, Leaf, Node, behind_views


@dataclass
class Stage:
    """The statements of a stage, and the sums that its loops make: the first of each, and how many."""

    in_blocks: bool = False
    """Whether a GPU's lanes look at samples block by block."""
    client: list[str] = field(default_factory=list)
    wide: list[str] = field(default_factory=list)
    """What lanes compute of all samples together, number by number, before anything else."""
    phases: dict[int, list[str]] = field(default_factory=dict)
    """Statements about a sample, by the phase whose loop has them."""
    rows_read: dict[int, set[str]] = field(default_factory=dict)
    """The tables whose row of a sample each of these loops reads."""
    tiles: dict[int, list[str]] = field(default_factory=dict)
    """What a CPU does with a block of samples at once, by its phase among those loops."""
    row: list[str] = field(default_factory=list)
    together: dict[int, list[str]] = field(default_factory=dict)
    """What lanes of a GPU do together with samples, by its phase; none of it comes in the first."""
    sums: int = 0
    late_sums: int = 0
    """Those that a GPU's loops behind the first make."""
    highest: int = 0
    late_highest: int = 0
    """The same of the largest numbers of samples or rows."""
    turned: dict[str, str] = field(default_factory=dict)
    """Matrices that lie the other way for products, and where they are turned to."""
    multiplied: Counter[int] = field(default_factory=Counter)
    """Products of every sample with a matrix that a phase has so far."""
    before: list[str] = field(default_factory=list)
    behind: list[str] = field(default_factory=list)
    """What lanes do before the first and behind the last block, for sums over all of them."""

    def add(self, phase: int, lines: list[str], rows_read: set[str]) -> None:
        """Add statements about a sample to the loop of a phase."""
        self.phases.setdefault(phase, []).extend(lines)
        self.rows_read.setdefault(phase, set()).update(rows_read)

    @property
    def loops(self) -> list[list[str]]:
        """What each loop over samples does, in the order of the loops."""
        return [lines for _, lines in sorted(self.phases.items())]

    @property
    def parts(self) -> list[tuple[int, list[str], bool]]:
        """All that is done with samples, by phase, and whether it is done with a block of them at once."""
        both = [(phase, lines, False) for phase, lines in self.phases.items()]
        both += [(phase, lines, True) for phase, lines in self.tiles.items()]
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

    def at(self, *index: IndexExpr) -> str:
        """The expression of an element."""
        return self.reader.read(self.node, index)

    @property
    def is_zero(self) -> bool:
        """Whether the loss does not depend on the leaf."""
        node = behind_views(self.node)
        return isinstance(node, Constant) and node.value == 0


@dataclass
class Lowered:
    """The code of a step's loss and gradients."""

    stages: list[Stage]
    leaves: dict[Leaf, Shape]
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
