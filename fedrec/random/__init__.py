"""Random draws as a pure function of where they are used.

Every draw is Philox4x32-10 (Salmon et al., 2011) applied to the counter
(index // 4, user, round, purpose) under the key `seed`; draw `index` is word `index % 4`.
So a draw depends on nothing else: not on the order of users, the size of a block, the
number of processes or the device. Philox uses only 32-bit multiplications and xors, which
numpy, torch and GPU kernels all compute exactly.
"""
