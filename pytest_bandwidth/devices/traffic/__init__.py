"""No GPU and no clock: executes a kernel's PTX on the CPU and counts what it asks of memory."""
