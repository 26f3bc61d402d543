"""Explain a call of PyTorch or JAX: what its operators move, beside the least that a fused kernel would."""
