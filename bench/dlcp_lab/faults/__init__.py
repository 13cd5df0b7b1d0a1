"""Faults made on purpose, in real daemons and trainers: a counting injector, matrix, soak."""
