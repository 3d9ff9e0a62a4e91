"""The text of a whole kernel: memory, epochs, mini-batches, stages and optimiser steps."""
