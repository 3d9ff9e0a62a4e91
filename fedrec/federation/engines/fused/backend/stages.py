"""A lowered loss: its statements of C by stage, the arrays that they need, and its gradients.

`lower.py` fills these classes; `kernel` writes loops around the statements. A stage first computes the
tensors of the client, then those of samples and rows, in loops. A sum over all samples is complete at the end
of its stage, so tensors that follow from it are in the next stage.
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
    """The statements of a stage, and the numbers of its sums."""

    in_blocks: bool = False
    """Whether lanes of a GPU take the samples block by block."""
    client: list[str] = field(default_factory=list)
    """Statements that compute tensors of the client, before any loop over samples."""
    wide: list[str] = field(default_factory=list)
    """Statements by which lanes of a GPU compute formulas of all samples together, before phase 0."""
    phases: dict[int, list[str]] = field(default_factory=dict)
    """Statements about one sample, by the phase whose loop has them."""
    rows_read: dict[int, set[str]] = field(default_factory=dict)
    """The tables of which the loop of a phase reads the row of each sample, by phase."""
    tiles: dict[int, list[str]] = field(default_factory=dict)
    """Statements by which a CPU computes products of a block of samples, by phase."""
    row: list[str] = field(default_factory=list)
    """Statements about one row, in a loop over all rows."""
    together: dict[int, list[str]] = field(default_factory=dict)
    """Statements by which lanes of a GPU compute samples together, by phase; phase 0 has none."""
    sums: int = 0
    """The numbers of sums over samples or rows that phase 0 of a GPU, or any phase of a CPU, computes."""
    late_sums: int = 0
    """The numbers of sums that later phases of a GPU compute."""
    highest: int = 0
    """Like `sums`, for maxima."""
    late_highest: int = 0
    """Like `late_sums`, for maxima."""
    turned: dict[str, str] = field(default_factory=dict)
    """The array with the transposed copy of a matrix, by the expression of the matrix's element."""
    multiplied: Counter[int] = field(default_factory=Counter)
    """The number of products of samples with a matrix that each phase has so far."""
    before: list[str] = field(default_factory=list)
    """Statements before the first block, for sums over the samples of all blocks."""
    behind: list[str] = field(default_factory=list)
    """Statements after the last block, for the same sums."""

    def add(self, phase: int, lines: list[str], rows_read: set[str]) -> None:
        """Add statements about a sample to the loop of a phase."""
        self.phases.setdefault(phase, []).extend(lines)
        self.rows_read.setdefault(phase, set()).update(rows_read)

    @property
    def loops(self) -> list[list[str]]:
        """The statements of each loop over samples, in the order of phases."""
        return [lines for _, lines in sorted(self.phases.items())]

    @property
    def parts(self) -> list[tuple[int, list[str], bool]]:
        """The phase and statements of each loop over samples, and whether they are for a whole block."""
        both = [(phase, lines, False) for phase, lines in self.phases.items()]
        both += [(phase, lines, True) for phase, lines in self.tiles.items()]
        return sorted(both, key=lambda part: part[0])

    @property
    def sample(self) -> list[str]:
        """The statements of all loops over samples."""
        return [line for lines in self.loops for line in lines]


@dataclass(frozen=True)
class Gradient:
    """The gradient by a leaf. One of samples is stored by sample, unless it is direct."""

    node: Node
    """The gradient's tensor, in the shape of the leaf."""
    reader: Reader
    """Gives its expressions."""
    is_direct: bool = False
    """Whether the loop over rows computes the gradient of each sample itself, so that none is stored."""

    def at(self, *index: IndexExpr) -> str:
        """The expression of an element."""
        return self.reader.read(self.node, index)

    @property
    def is_zero(self) -> bool:
        """Whether the gradient is the constant 0."""
        node = behind_views(self.node)
        return isinstance(node, Constant) and node.value == 0


@dataclass
class Lowered:
    """The code of a step's loss and gradients: what the backend gives to `kernel`."""

    stages: list[Stage]
    """The stages in their order."""
    leaves: dict[Leaf, Shape]
    """The inputs that the code reads, with their shapes."""
    arrays: dict[str, int]
    """The arrays of the client, by name, with their count of numbers."""
    kept: dict[str, int]
    """The arrays with one entry per sample, by name, with the count of numbers in an entry."""
    locals: list[Local]
    """The arrays with one entry per sample of a block."""
    constants: list[float]
    """The numbers that are arguments of the kernel."""
    loss: str
    """The expression of the mini-batch's loss."""
    gradients: dict[Leaf, Gradient]
    """The gradient by each leaf."""
