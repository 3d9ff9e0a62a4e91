"""The kernel of a fit: epochs, mini-batches, stages and optimiser steps."""
