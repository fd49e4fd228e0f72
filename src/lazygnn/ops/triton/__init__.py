"""Triton kernels for an accelerator; `lazygnn.ops.dispatch` imports these modules only if Triton works."""
