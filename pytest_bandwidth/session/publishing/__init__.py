"""Put a run's rows together when its tests have run: baseline, files, summary."""
