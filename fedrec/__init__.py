"""fedrec: federated recommendation papers, regenerated under an honest protocol."""

__version__ = "0.1.0"
