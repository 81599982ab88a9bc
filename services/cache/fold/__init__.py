"""Pure part of the cache: projection of objects to facts and comparison with the stream."""
