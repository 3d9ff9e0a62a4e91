"""What a method is made of: everything the file of a method or plug-in is written with."""

from fedrec.federation.model.citation import Citation
from fedrec.federation.model.client import (
    Client,
    Fit,
    GaussianMechanism,
    Half,
    Operation,
    Program,
    Rewrite,
    Step,
    Through,
    Upload,
    WholeTable,
)
from fedrec.federation.model.method import Method, Who
from fedrec.federation.model.own import History
from fedrec.federation.model.parameters import (
    Initial,
    Location,
    Parameter,
    initial_values,
    item_table,
    matrix,
    mlp,
    user_table,
    vector,
)
from fedrec.federation.model.plugin import Plugin, refuse_guarded
from fedrec.federation.model.server_rule import Mixed, ServerRule, ServerSide, Uploads
from fedrec.federation.model.tables import Combined, GatheredRows, PlainTable, Values, View
from fedrec.federation.model.weights import (
    Batch,
    Loss,
    Part,
    RowsOf,
    Weights,
    dot,
    mean_entropy,
    perceptron,
)

__all__ = [
    "Batch",
    "Citation",
    "Client",
    "Combined",
    "Fit",
    "GatheredRows",
    "GaussianMechanism",
    "Half",
    "History",
    "Initial",
    "Location",
    "Loss",
    "Method",
    "Mixed",
    "Operation",
    "Parameter",
    "Part",
    "PlainTable",
    "Plugin",
    "Program",
    "Rewrite",
    "RowsOf",
    "ServerRule",
    "ServerSide",
    "Step",
    "Through",
    "Upload",
    "Uploads",
    "Values",
    "View",
    "Weights",
    "Who",
    "WholeTable",
    "dot",
    "initial_values",
    "item_table",
    "matrix",
    "mean_entropy",
    "mlp",
    "perceptron",
    "refuse_guarded",
    "user_table",
    "vector",
]
