"""When will it start: durations from history, and the engine playing the queue forward."""
