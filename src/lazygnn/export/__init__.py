"""Trained models outside of this library: weights, a description, and a file of plain PyTorch that reads both."""
