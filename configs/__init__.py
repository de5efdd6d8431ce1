"""One small file per study; each says what differs from `accel_bench.config.base`."""
