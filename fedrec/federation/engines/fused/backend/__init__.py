"""The statements of C that compute the tensors of a graph."""
