"""Tapeformer: attention for PyTorch, and models that the program tapeformer trains.

tapeformer.torch has attention as functions and modules of PyTorch; it needs PyTorch and is imported separately.
"""
