"""Count what kernels ask of memory, without a GPU and without a clock, by executing their PTX on the CPU."""
