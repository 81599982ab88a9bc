"""When will it start: durations from history, and a simulation of the queue by the engine."""
