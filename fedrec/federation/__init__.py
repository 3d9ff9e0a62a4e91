"""The engine: clients in blocks, local training, upload, aggregation, resume. Knows no method by name."""
