"""What the JSON objects of several benchmarks begin with."""

HEAD = ("bench", "synthetic", "weights", "activation_bits", "threads", "instruction_set")
