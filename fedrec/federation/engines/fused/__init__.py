"""The fused engine: it compiles a method's local training from the loss that the method already has.

`compiling.py` takes one fit through the folders in order: `trace` (loss to graph), `passes` (graph to
schedule), `backend` (schedule to statements of C), `kernel` (statements to a whole kernel). `ir` defines the
graph. `engine.py` launches kernels. The head of `passes/schedule.py` defines the terms of the compiler.
"""
