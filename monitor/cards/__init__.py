"""Where cards come from: the driver (`nvml`) or a configuration (`simulated`), behind one protocol."""
